"""The programs in ``examples/`` run and do what they say."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from coatcheck import Engine, JobView, Settings, State
from tests.e2e.programs import environment, output_of, worker
from tests.markdown import REPOSITORY

EXAMPLES = REPOSITORY / "examples"
TEXT = "# To be\nor not to be\n## That is"


@pytest.fixture
def env(dsn: str, tmp_path: Path) -> dict[str, str]:
    return environment(dsn, tmp_path)


@pytest.fixture
def workers(env: dict[str, str], tmp_path: Path) -> Iterator[None]:
    """A worker for every example that is a service."""
    targets = ["examples.hello:hello", "examples.documents:documents"]
    with worker(targets, cwd=REPOSITORY, env=env, log=tmp_path / "worker.log"):
        yield


@pytest.fixture
async def engine(env: dict[str, str]) -> AsyncIterator[Engine]:
    async with await Engine.connect(Settings.from_environment(env)) as connected:
        yield connected


async def result(engine: Engine, endpoint: str, arguments: object) -> tuple[JobView, Any]:
    ticket = await engine.submit(endpoint, arguments)
    job = await engine.wait(ticket.id)
    assert job.state is State.COMPLETED, f"{job.error_code}: {job.error_message}"
    assert job.result is not None
    return job, json.loads(job.result)


def test_first_job_uses_the_database_it_is_given(env: dict[str, str]) -> None:
    printed = output_of(EXAMPLES / "first_job.py", cwd=REPOSITORY, env=env)
    assert printed.endswith("completed after 1 attempt: {'words': 6, 'different': 4}\n")


def test_first_job_brings_its_own_database_otherwise(env: dict[str, str], data_root: Path) -> None:
    del env["COATCHECK_DATABASE_URL"]
    env["TMPDIR"] = str(data_root)
    printed = output_of(EXAMPLES / "first_job.py", cwd=REPOSITORY, env=env)
    assert printed.endswith("completed after 1 attempt: {'words': 6, 'different': 4}\n")
    assert list(data_root.iterdir()) == [], "it leaves nothing behind"


async def test_hello_greets(workers: None, engine: Engine) -> None:
    job, greeting = await result(engine, "hello.post__greet", {"name": "Ada"})
    assert greeting == {"greeting": "Hello, Ada!"}
    assert (job.progress, job.progress_note) == (0.5, "thinking of a greeting")


async def test_documents_outline_sends_each_heading_on_the_way(
    workers: None, engine: Engine
) -> None:
    job, headings = await result(engine, "documents.post__outline", {"text": TEXT})
    assert headings == [{"level": 1, "title": "To be"}, {"level": 2, "title": "That is"}]
    assert [json.loads(event.data) for event in await engine.events(job.id)] == headings


async def test_documents_digest_runs_in_a_thread_and_logs(workers: None, engine: Engine) -> None:
    job, digest = await result(engine, "documents.post__digest", {"text": TEXT})
    assert digest == hashlib.sha256(TEXT.encode()).hexdigest()
    (line,) = await engine.events(job.id)
    assert json.loads(line.data)["fields"] == {"characters": len(TEXT)}


async def test_documents_word_table_attaches_a_file_and_leaves_no_folder(
    workers: None, engine: Engine, env: dict[str, str]
) -> None:
    job, different = await result(engine, "documents.post__word_table", {"text": TEXT, "top": 2})
    assert different == 8
    (artifact,) = await engine.artifacts(job.id)
    content = b"".join([piece async for piece in engine.read_artifact(artifact)])
    assert content.decode().split() == ["word,count", "be,2", "to,2"]
    assert artifact.sha256 == hashlib.sha256(content).digest()
    assert [path.name for path in Path(env["COATCHECK_TEMP_DIR"]).rglob(f"{job.id}*")] == []
