"""The programs in ``examples/client`` run, and the guide that shows them shows these."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from examples.documents import documents
from examples.hello import hello
from tests.deployment import Deployment
from tests.e2e.programs import output_of
from tests.markdown import REPOSITORY, Page

EXAMPLES = REPOSITORY / "examples" / "client"
GUIDE = Page(REPOSITORY / "docs" / "how-to" / "use-the-python-client.md")
TEXT = b"to be or not to be"


@pytest.fixture
async def env(dsn: str, tmp_path: Path) -> AsyncIterator[dict[str, str]]:
    """What a client's program is told: where the server is, and its key."""
    async with Deployment(dsn, tmp_path) as deployment:
        await deployment.start_worker(hello, documents)
        await deployment.start_batches_worker()
        deployment.start_maintenance()
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("COATCHECK_")}
        yield inherited | {
            "COATCHECK_URL": str(deployment.http.base_url),
            "COATCHECK_API_KEY": deployment.key,
            "NO_PROXY": "127.0.0.1",
            "PYTHONPATH": str(REPOSITORY / "src"),
        }


async def run(name: str, env: dict[str, str], cwd: Path = REPOSITORY) -> list[str]:
    printed = await asyncio.to_thread(output_of, EXAMPLES / name, cwd=cwd, env=env)
    return printed.splitlines()


async def test_greet_waits_for_its_result(env: dict[str, str]) -> None:
    first, *rest = await run("greet.py", env)
    assert first == "queued, so far"
    assert rest == ["completed: Hello, Ada!", "Hello, Grace!"]


async def test_follow_shows_each_heading_once(env: dict[str, str]) -> None:
    assert await run("follow.py", env) == [
        "heading: To be",
        "heading: That is the question",
        "completed with 2 headings",
    ]


async def test_many_collects_results_and_failures_and_may_be_started_twice(
    env: dict[str, str],
) -> None:
    lines = await run("many.py", env)
    assert lines[:2] == [
        f"{name}: {hashlib.new(name, TEXT).hexdigest()[:16]}" for name in ("sha256", "blake2b")
    ]
    assert lines[2].startswith("rot13: invalid_input: algorithm: ")
    assert lines[3] == "1 failed"
    assert await run("many.py", env) == lines


async def test_batch_runs_again_what_failed_and_fetches_the_results(
    env: dict[str, str], tmp_path: Path
) -> None:
    assert await run("batch.py", env, tmp_path) == [
        "completed: 3 of 4 succeeded",
        "odd: invalid_input",
        "run 2: 1 failed again",
        "digests.zip",
    ]
    assert (tmp_path / "digests.zip").stat().st_size > 0


def test_the_guide_shows_the_programs_as_they_are() -> None:
    shown = [block.text for block in GUIDE.blocks("python")]
    for path in EXAMPLES.glob("*.py"):
        _, _, program = path.read_text().rpartition('"""\n\n')
        assert program in shown, path.name
