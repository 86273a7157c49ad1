"""Orphan blobs go; everything else stays."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from coatcheck.blobs import BlobContainer
from coatcheck.blobs.keys import artifact_key, input_key, upload_key
from coatcheck.blobs.pieces import store_pieces
from coatcheck.core.queries import inputs, reports, uploads
from coatcheck.db.connection import Connection
from coatcheck.domain.ids import new_id
from coatcheck.domain.inputs import HeldCopy, Mechanism
from coatcheck.http.request import LIST_SECONDS_MAX
from coatcheck.maintenance.retention import ARTIFACT_GRACE, INPUT_GRACE, OrphanBlobSweeper
from coatcheck.products.batches.maintenance import LIST_GRACE, BatchSweeper
from coatcheck.products.batches.model import export_key, list_key
from tests.db.batch_blobs import put_export, put_part
from tests.db.input_rows import put_input


@pytest.fixture
async def line(dsn: str) -> AsyncIterator[Connection]:
    line = Connection(dsn, name="test")
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
    line: Connection, blobs: BlobContainer
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
    await OrphanBlobSweeper(line, blobs, grace=timedelta(0)).tick()
    assert (await is_there(blobs, orphan), await is_there(blobs, wanted)) == (False, True)


async def test_a_young_blob_is_left_alone_for_its_row_may_be_on_its_way(
    line: Connection, blobs: BlobContainer
) -> None:
    young = artifact_key(await reports.deployment(line), new_id())
    await blobs.put(young, b"x")
    await OrphanBlobSweeper(line, blobs).tick()
    assert await is_there(blobs, young)


async def test_the_blobs_of_another_database_in_the_same_container_are_left_alone(
    line: Connection, blobs: BlobContainer
) -> None:
    foreign = artifact_key(new_id(), new_id())
    await blobs.put(foreign, b"x")
    await OrphanBlobSweeper(line, blobs, grace=timedelta(0)).tick()
    assert await is_there(blobs, foreign)


# Inputs


async def content() -> AsyncIterator[bytes]:
    yield b"two pieces"


async def upload(line: Connection, blobs: BlobContainer) -> HeldCopy:
    """An input in two pieces, for a job that there is not."""
    job = new_id()
    key = input_key(await reports.deployment(line), job)
    await store_pieces(blobs, key, content(), piece_bytes=5)
    return HeldCopy("acme", job, key)


async def pieces_left(blobs: BlobContainer, copy: HeldCopy) -> int:
    return sum([await is_there(blobs, f"{copy.place}/{number:05}") for number in range(2)])


async def test_an_upload_without_a_job_is_swept_and_one_with_a_job_is_not(
    line: Connection, blobs: BlobContainer
) -> None:
    orphan, wanted = await upload(line, blobs), await upload(line, blobs)
    await put_input(line, wanted.place, uuid=wanted.job)
    assert await pieces_left(blobs, orphan) == 2
    await OrphanBlobSweeper(line, blobs, grace=timedelta(0)).tick()
    assert (await pieces_left(blobs, orphan), await pieces_left(blobs, wanted)) == (0, 2)


async def test_the_upload_of_a_racer_that_lost_and_died_is_swept(
    line: Connection, blobs: BlobContainer
) -> None:
    winner = await upload(line, blobs)
    await put_input(line, winner.place, uuid=winner.job)
    rival = input_key(await reports.deployment(line), winner.job)
    await store_pieces(blobs, rival, content(), piece_bytes=5)
    await OrphanBlobSweeper(line, blobs, grace=timedelta(0)).tick()
    assert await pieces_left(blobs, winner) == 2
    assert await pieces_left(blobs, HeldCopy("acme", winner.job, rival)) == 0


async def test_pieces_of_an_input_that_is_said_to_be_deleted_are_swept(
    line: Connection, blobs: BlobContainer
) -> None:
    copy = await upload(line, blobs)
    await put_input(line, copy.place, uuid=copy.job)
    await inputs.mark_deleted(line, [(copy, Mechanism.WORKER)])
    await OrphanBlobSweeper(line, blobs, grace=timedelta(0)).tick()
    assert await pieces_left(blobs, copy) == 0


async def test_an_orphan_input_is_swept_sooner_than_an_artifact(
    line: Connection, blobs: BlobContainer, tmp_path: Path
) -> None:
    artifact = artifact_key(await reports.deployment(line), new_id())
    await blobs.put(artifact, b"x")
    old, young = await upload(line, blobs), await upload(line, blobs)
    for folder in (tmp_path / old.place, (tmp_path / artifact).parent):
        age(folder, INPUT_GRACE + timedelta(seconds=1))
    age(tmp_path / young.place, INPUT_GRACE - timedelta(minutes=1))
    assert INPUT_GRACE < ARTIFACT_GRACE
    await OrphanBlobSweeper(line, blobs).tick()
    assert (await pieces_left(blobs, old), await pieces_left(blobs, young)) == (0, 2)
    assert await is_there(blobs, artifact)


def age(folder: Path, by: timedelta) -> None:
    """Move the clock of the files in a folder."""
    for path in folder.iterdir():
        written = path.stat().st_mtime - by.total_seconds()
        os.utime(path, (written, written))


# What batches are made of, and make


async def test_a_staged_list_goes_when_nobody_answers_for_it_and_its_row_when_its_time_is_up(
    line: Connection, blobs: BlobContainer
) -> None:
    deployment = await reports.deployment(line)
    left: dict[str, str] = {}
    for kind, life_seconds in {"waiting": 3600.0, "expired": -3600.0, "never made": None}.items():
        upload_id = new_id()
        left[kind] = upload_key(deployment, upload_id)
        await blobs.put(left[kind], b"[]")
        if life_seconds is not None:
            await uploads.create(
                line,
                org="acme",
                upload_id=upload_id,
                owner="user:ann",
                blob_key=left[kind],
                life_seconds=life_seconds,
            )
    await BatchSweeper(line, blobs, grace=timedelta(0)).tick()
    assert [kind for kind, key in left.items() if await is_there(blobs, key)] == ["waiting"]
    rows = await line.fetch("SELECT blob_key FROM uploads")
    assert [row["blob_key"] for row in rows] == [left["waiting"]]


async def test_a_list_in_pieces_goes_when_its_part_was_taken_in(
    line: Connection, blobs: BlobContainer
) -> None:
    deployment, part = await reports.deployment(line), new_id()
    wanted, of_a_dead_request = (list_key(deployment, new_id(), part) for _ in range(2))
    for key in (wanted, of_a_dead_request):
        await store_pieces(blobs, key, content(), piece_bytes=5)
    await put_part(line, part=part, source="pieces", source_key=wanted)
    sweeper = BatchSweeper(line, blobs, grace=timedelta(0))
    await sweeper.tick()
    assert await is_there(blobs, f"{wanted}/00001")
    assert not await is_there(blobs, f"{of_a_dead_request}/00000")
    await line.fetch("UPDATE batch_parts SET state = 'done'")
    await sweeper.tick()
    assert not await is_there(blobs, f"{wanted}/00000")
    assert not await is_there(blobs, f"{wanted}/00001")


async def test_an_export_goes_when_its_time_is_up(line: Connection, blobs: BlobContainer) -> None:
    deployment, export = await reports.deployment(line), new_id()
    wanted, of_a_lost_attempt = (export_key(deployment, new_id(), export) for _ in range(2))
    for key in (wanted, of_a_lost_attempt):
        await blobs.put(key, b"zip")
    await put_export(line, export, wanted)
    sweeper = BatchSweeper(line, blobs, grace=timedelta(0))
    await sweeper.tick()
    assert (await is_there(blobs, wanted), await is_there(blobs, of_a_lost_attempt)) == (
        True,
        False,
    )
    await line.fetch("UPDATE batch_exports SET expires_at = now()")
    await sweeper.tick()
    assert not await is_there(blobs, wanted)


def test_the_first_piece_of_a_list_is_not_swept_while_the_last_is_waited_for() -> None:
    assert timedelta(seconds=LIST_SECONDS_MAX) < LIST_GRACE
