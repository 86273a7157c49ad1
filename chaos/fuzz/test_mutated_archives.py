"""Randomly mutated archives: each is refused or read as an archive, and nothing else happens."""

from __future__ import annotations

import asyncio
import tempfile
import zipfile
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from chaos.fuzz.mutations import mutated
from coatcheck.archives import ArchiveReader
from coatcheck.domain.errors import ArchiveRejected
from tests.archives.hostile import CASES
from tests.archives.test_mutations import ORIGINALS
from tests.budget import chance, times
from tests.deployment import Deployment
from tests.products.graphs.archives import PROGRAM, post, zipped
from tests.products.graphs.test_hostile import Surroundings, expect_health
from tests.waiting import eventually_async

READ = 1_500
HANDED_IN = 40
AT_ONCE = 4
SEED_BYTES_MAX = 200_000
MEMBER_BYTES_MAX = 1024 * 1024
ENDS = {"completed", "failed"}


def corpus() -> list[bytes]:
    """Archives to begin with: the hostile ones that are small, and as many good ones."""
    hostile = [case.build() for case in CASES]
    small = [data for data in hostile if 0 < len(data) <= SEED_BYTES_MAX]
    good = [zipped(PROGRAM), zipped(PROGRAM, method=zipfile.ZIP_STORED), *ORIGINALS.values()]
    return small + good * (len(small) // len(good))


@pytest.fixture
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the deployment deep inside: files that escape an archive land in it."""
    (tmp_path / "deep" / "down" / "deployment").mkdir(parents=True)
    (tmp_path / "here" / "and" / "there").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here" / "and" / "there")
    return tmp_path


@pytest.fixture
async def deployment(dsn: str, ground: Path) -> AsyncIterator[Deployment]:
    async with Deployment(dsn, ground / "deep" / "down" / "deployment") as opened:
        yield opened


def refused(descriptor: int) -> str | None:
    """The reason for its refusal, if it is refused."""
    try:
        with ArchiveReader(descriptor) as reader:
            for entry in reader.entries:
                reader.read(entry, MEMBER_BYTES_MAX)
    except ArchiveRejected as refusal:
        return str(refusal)
    return None


def test_a_reader_reads_it_or_refuses_it_and_writes_nothing(ground: Path) -> None:
    rng, seeds = chance("archives for the reader"), corpus()
    before, told = Surroundings.of(ground), Counter[str]()
    for number in range(READ * times()):
        data = mutated(rng, rng.choice(seeds), seeds)
        with tempfile.TemporaryFile() as file:
            file.write(data)
            file.flush()
            refusal = refused(file.fileno())
        told["read" if refusal is None else "refused"] += 1
        assert refusal is None or refusal.isprintable(), number
    print(dict(told))
    assert Surroundings.of(ground) == before
    assert min(told["read"], told["refused"]) > 0, "only one of the two was tried"


async def test_a_deployment_refuses_it_or_makes_a_job_of_it_that_ends(
    deployment: Deployment, ground: Path
) -> None:
    await deployment.start_graphs_worker()
    rng, seeds = chance("archives for a deployment"), corpus()
    before, told = Surroundings.of(ground), Counter[str]()
    turns = asyncio.Semaphore(AT_ONCE)

    async def hand_in(number: int, data: bytes) -> None:
        async with turns:
            answer = await post(deployment.http, data, f"mutated {number}", operation="supermodel")
            body = answer.json()
            if answer.status_code == 422:
                assert body["code"] == "archive_rejected", (number, body)
                told["refused at once"] += 1
                return
            assert answer.status_code in (202, 400), (number, answer.status_code, body)
            if answer.status_code == 400:
                told["no archive"] += 1
                return
            ended = (await deployment.http.get(f"{body['urls']['poll']}?wait=50")).json()
            assert ended["status"] in ENDS, (number, ended)
            if ended["status"] == "failed":
                assert ended["errorCode"] == "archive_rejected", (number, ended)
            told[ended["status"]] += 1

    handed_in = [mutated(rng, rng.choice(seeds), seeds) for _ in range(HANDED_IN * times())]
    async with asyncio.TaskGroup() as group:
        for number, data in enumerate(handed_in):
            group.create_task(hand_in(number, data))
    print(dict(told))

    async def nothing_is_left() -> bool:
        return Surroundings.of(ground) == before

    await eventually_async(nothing_is_left, "nothing is left of the archives anywhere")
    assert told["refused at once"] > 0
    assert told["completed"] + told["failed"] > 0
    await expect_health(deployment)
