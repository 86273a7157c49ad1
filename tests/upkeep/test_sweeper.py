"""Orphan blobs go; everything else stays."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from coatcheck.blobs import BlobContainer
from coatcheck.blobs.keys import artifact_key, input_key
from coatcheck.blobs.pieces import store_pieces
from coatcheck.domain.ids import new_id
from coatcheck.domain.inputs import HeldCopy, Mechanism
from coatcheck.store import inputs, reports
from coatcheck.store.line import Line
from coatcheck.upkeep.sweeper import ARTIFACT_GRACE, INPUT_GRACE, Sweeper
from tests.store.input_rows import put_input


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


# Inputs


async def content() -> AsyncIterator[bytes]:
    yield b"two pieces"


async def upload(line: Line, blobs: BlobContainer) -> HeldCopy:
    """An input in two pieces, for a job that there is not."""
    job = new_id()
    key = input_key(await reports.deployment(line), job)
    await store_pieces(blobs, key, content(), piece_bytes=5)
    return HeldCopy("acme", job, key)


async def pieces_left(blobs: BlobContainer, copy: HeldCopy) -> int:
    return sum([await is_there(blobs, f"{copy.place}/{number:05}") for number in range(2)])


async def test_an_upload_without_a_job_is_swept_and_one_with_a_job_is_not(
    line: Line, blobs: BlobContainer
) -> None:
    orphan, wanted = await upload(line, blobs), await upload(line, blobs)
    await put_input(line, wanted.place, uuid=wanted.job)
    assert await pieces_left(blobs, orphan) == 2
    await Sweeper(line, blobs, grace=timedelta(0)).tick()
    assert (await pieces_left(blobs, orphan), await pieces_left(blobs, wanted)) == (0, 2)


async def test_the_upload_of_a_racer_that_lost_and_died_is_swept(
    line: Line, blobs: BlobContainer
) -> None:
    winner = await upload(line, blobs)
    await put_input(line, winner.place, uuid=winner.job)
    rival = input_key(await reports.deployment(line), winner.job)
    await store_pieces(blobs, rival, content(), piece_bytes=5)
    await Sweeper(line, blobs, grace=timedelta(0)).tick()
    assert await pieces_left(blobs, winner) == 2
    assert await pieces_left(blobs, HeldCopy("acme", winner.job, rival)) == 0


async def test_pieces_of_an_input_that_is_said_to_be_deleted_are_swept(
    line: Line, blobs: BlobContainer
) -> None:
    copy = await upload(line, blobs)
    await put_input(line, copy.place, uuid=copy.job)
    await inputs.mark_deleted(line, [(copy, Mechanism.WORKER)])
    await Sweeper(line, blobs, grace=timedelta(0)).tick()
    assert await pieces_left(blobs, copy) == 0


async def test_an_orphan_input_is_swept_sooner_than_an_artifact(
    line: Line, blobs: BlobContainer, tmp_path: Path
) -> None:
    artifact = artifact_key(await reports.deployment(line), new_id())
    await blobs.put(artifact, b"x")
    old, young = await upload(line, blobs), await upload(line, blobs)
    for folder in (tmp_path / old.place, (tmp_path / artifact).parent):
        age(folder, INPUT_GRACE + timedelta(seconds=1))
    age(tmp_path / young.place, INPUT_GRACE - timedelta(minutes=1))
    assert INPUT_GRACE < ARTIFACT_GRACE
    await Sweeper(line, blobs).tick()
    assert (await pieces_left(blobs, old), await pieces_left(blobs, young)) == (0, 2)
    assert await is_there(blobs, artifact)


def age(folder: Path, by: timedelta) -> None:
    """Move the clock of the files in a folder."""
    for path in folder.iterdir():
        written = path.stat().st_mtime - by.total_seconds()
        os.utime(path, (written, written))
