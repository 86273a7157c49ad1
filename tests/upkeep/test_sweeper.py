"""Orphan blobs go; everything else stays."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from coatcheck.blobs import BlobContainer
from coatcheck.blobs.keys import artifact_key
from coatcheck.domain.ids import new_id
from coatcheck.store import reports
from coatcheck.store.line import Line
from coatcheck.upkeep.sweeper import Sweeper


@pytest.fixture
async def line(dsn: str) -> AsyncIterator[Line]:
    line = Line(dsn, name="test")
    yield line
    await line.close()


@pytest.fixture
def blobs(tmp_path: Path) -> BlobContainer:
    return BlobContainer.open(tmp_path.as_uri())


async def is_there(blobs: BlobContainer, key: str) -> bool:
    try:
        await blobs.get(key)
    except FileNotFoundError:
        return False
    return True


async def test_a_blob_whose_row_was_never_written_is_swept_and_an_artifact_is_not(
    line: Line, blobs: BlobContainer
) -> None:
    deployment, job = await reports.deployment(line), new_id()
    orphan, wanted = artifact_key(deployment, job), artifact_key(deployment, job)
    for key in (orphan, wanted):
        await blobs.put(key, b"x")
    await line.fetch(
        "INSERT INTO artifacts (org_id, job_id, name, blob_key, media_type, bytes, sha256)"
        " VALUES ('a/../b', $1, 'x', $2, 'text/plain', 1, '')",
        job,
        wanted,
    )
    await Sweeper(line, blobs, grace=timedelta(0)).tick()
    assert (await is_there(blobs, orphan), await is_there(blobs, wanted)) == (False, True)


async def test_a_young_blob_is_left_alone_for_its_row_may_be_on_its_way(
    line: Line, blobs: BlobContainer
) -> None:
    young = artifact_key(await reports.deployment(line), new_id())
    await blobs.put(young, b"x")
    await Sweeper(line, blobs).tick()
    assert await is_there(blobs, young)


async def test_the_blobs_of_another_database_in_the_same_container_are_left_alone(
    line: Line, blobs: BlobContainer
) -> None:
    foreign = artifact_key(new_id(), new_id())
    await blobs.put(foreign, b"x")
    await Sweeper(line, blobs, grace=timedelta(0)).tick()
    assert await is_there(blobs, foreign)
