"""The whole corpus of hostile archives, handed in over a socket. `pytest -s` shows the counts."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx2
import psutil
import pytest

from coatcheck.blobs import BlobContainer
from coatcheck.db.connection import Connection
from tests.archives.hostile import CASES, Hostile
from tests.deployment import Deployment
from tests.products.graphs.archives import PROGRAM, post, zipped
from tests.products.graphs.stored import complete_receipt, inputs_in

GOOD = zipped(PROGRAM)
AT_ONCE = 4
TOLD_BY_DIRECTORY = [case for case in CASES if case.where == "directory"]
TOLD_BY_READER = [case for case in CASES if case.where == "reader"]


@dataclass(frozen=True)
class Surroundings:
    """What an archive could reach if it climbed out of where it is read."""

    files: frozenset[str]
    named_by_archives: tuple[int, ...]

    @classmethod
    def of(cls, ground: Path) -> Surroundings:
        """Every file below ``ground``, the names in the root folder, and the file that absolute
        names and links of the corpus mean."""
        below = {f"{path} {path.lstat().st_mode:o}" for path in ground.rglob("*")}
        top = {f"/{name}" for name in os.listdir("/")}  # noqa: PTH208 - no link is followed
        named = Path("/etc/passwd").stat()
        return cls(frozenset(below | top), (named.st_ino, named.st_size, named.st_mtime_ns))


@pytest.fixture
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the deployment deep inside it, so that what climbs out lands in it, and a
    folder to work in. Nothing in it may change but the deployment's own."""
    (tmp_path / "deep" / "down" / "deployment").mkdir(parents=True)
    (tmp_path / "here" / "and" / "there").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here" / "and" / "there")
    return tmp_path


@pytest.fixture
async def deployment(dsn: str, ground: Path) -> AsyncIterator[Deployment]:
    async with Deployment(dsn, ground / "deep" / "down" / "deployment") as opened:
        yield opened


@pytest.fixture
async def line(dsn: str) -> AsyncIterator[Connection]:
    line = Connection(dsn, name="tests")
    yield line
    await line.close()


async def hand_in(deployment: Deployment, cases: Sequence[Hostile]) -> list[httpx2.Response]:
    """A few at a time, each with its name for a key."""
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(case: Hostile) -> httpx2.Response:
        async with turns:
            return await post(deployment.http, case.build(), case.name, operation="supermodel")

    return await asyncio.gather(*(one(case) for case in cases))


async def rows(line: Connection, table: str) -> int:
    (row,) = await line.fetch(f"SELECT count(*) AS rows FROM {table}")
    return int(row["rows"])


async def expect_health(deployment: Deployment) -> None:
    """The same server and the same worker still do their work."""
    answer = await post(deployment.http, GOOD, "a good one", Prefer="wait=60")
    assert answer.status_code == 200, answer.text
    assert answer.json()["status"] == "completed"
    assert answer.json()["result"]["stats"]["calls"]["resolved"] == 1
    assert (await deployment.http.get("/readyz")).status_code == 200
    await complete_receipt(deployment, answer.json())
    assert analyses() == []


def analyses() -> list[psutil.Process]:
    """The processes of analyses that are left, and their parsers."""
    left = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if any("executors.child" in word for word in process.cmdline()):
                left.append(process)
    return left


def show(what: str, cases: Sequence[Hostile]) -> None:
    reasons = Counter(case.reason for case in cases)
    print(f"\n{len(cases)} {what}, for {len(reasons)} reasons: {dict(reasons.most_common())}")


@pytest.mark.slow
async def test_an_archive_whose_directory_tells_is_refused_before_there_is_a_job(
    deployment: Deployment, line: Connection, ground: Path
) -> None:
    await deployment.start_graphs_worker()
    blobs = BlobContainer.open(deployment.settings.blob_url)
    before = Surroundings.of(ground)
    answers = await hand_in(deployment, TOLD_BY_DIRECTORY)
    told = {}
    for case, answer in zip(TOLD_BY_DIRECTORY, answers, strict=True):
        body = answer.json()
        told[case.name] = (answer.status_code, body.get("code"), body.get("details"))
        assert "evil" not in answer.text
    assert told == {
        case.name: (
            422,
            "archive_rejected",
            [{"field": "file", "issue": case.reason, "location": "body"}],
        )
        for case in TOLD_BY_DIRECTORY
    }
    assert await rows(line, "jobs") == await rows(line, "job_inputs") == 0
    assert await inputs_in(blobs) == []
    assert Surroundings.of(ground) == before
    await expect_health(deployment)
    show("refused by their directory (422, no job, no blob)", TOLD_BY_DIRECTORY)


@pytest.mark.slow
async def test_an_archive_that_only_reading_tells_fails_its_job_and_nothing_else(
    deployment: Deployment, line: Connection, ground: Path
) -> None:
    await deployment.start_graphs_worker()
    blobs = BlobContainer.open(deployment.settings.blob_url)
    before = Surroundings.of(ground)
    answers = await hand_in(deployment, TOLD_BY_READER)
    told = {}
    for case, answer in zip(TOLD_BY_READER, answers, strict=True):
        assert answer.status_code == 202, (case.name, answer.text)
        ended = await deployment.http.get(f"{answer.json()['urls']['poll']}?wait=60")
        body = ended.json()
        told[case.name] = (ended.status_code, body["status"], body.get("errorCode"))
        assert f"({case.reason})" in body["error"], case.name
        assert "evil" not in ended.text
        await complete_receipt(deployment, body)
    assert told == {case.name: (200, "failed", "archive_rejected") for case in TOLD_BY_READER}
    assert await rows(line, "jobs") == await rows(line, "job_inputs") == len(TOLD_BY_READER)
    assert await inputs_in(blobs) == []
    assert Surroundings.of(ground) == before
    await expect_health(deployment)
    show("failed by their bytes (a failed job, a complete receipt)", TOLD_BY_READER)
