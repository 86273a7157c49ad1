"""A blob that its artifact's end left behind is deleted, and only then said to be gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from coatcheck.blobs import BlobContainer
from coatcheck.core.queries import artifacts, maintenance
from coatcheck.db.connection import Connection
from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.states import State
from coatcheck.maintenance import retention
from coatcheck.maintenance.retention import ArtifactCleanup, Pruner
from tests.db.edge_guard import AsyncpgConnection
from tests.db.rows import expire, put_job

NAME = "file"


async def old_job(connection: AsyncpgConnection, blobs: BlobContainer, blob_key: str) -> ClaimedJob:
    """A job whose retention has ended, with an artifact."""
    job = await put_job(connection, State.COMPLETED)
    await blobs.put(blob_key, b"content")
    await connection.execute(
        "INSERT INTO artifacts VALUES ($1, $2, $3, $4, 'text/plain', 7, '')",
        job.org,
        job.uuid,
        NAME,
        blob_key,
    )
    await expire(connection, job.uuid)
    return job


async def is_complete(line: Connection, job: ClaimedJob) -> bool:
    record = await artifacts.record(line, job.org, job.uuid, NAME)
    assert record is not None
    return record.complete


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()}


async def test_the_pruner_deletes_the_blob_and_closes_the_record(
    line: Connection, blobs: BlobContainer, folder: Path, connection: AsyncpgConnection
) -> None:
    job = await old_job(connection, blobs, "blob")
    await Pruner(line, blobs).tick()
    assert files(folder) == set()
    assert await is_complete(line, job)


async def test_what_a_crash_between_row_and_blob_left_is_deleted_and_then_closed(
    line: Connection, blobs: BlobContainer, folder: Path, connection: AsyncpgConnection
) -> None:
    job = await old_job(connection, blobs, "blob")
    await maintenance.prune(line, rows_max=10)  # and whoever did so dies here
    assert files(folder) == {"blob"}
    assert not await is_complete(line, job)
    await ArtifactCleanup(line, blobs).tick()
    assert files(folder) == {"blob"}, "whoever took the row away may still be at it"
    await ArtifactCleanup(line, blobs, grace_seconds=0.0).tick()
    assert files(folder) == set()
    assert await is_complete(line, job)


async def test_one_that_was_deleted_before_its_record_was_closed_is_no_error(
    line: Connection, blobs: BlobContainer, folder: Path, connection: AsyncpgConnection
) -> None:
    job = await old_job(connection, blobs, "blob")
    await maintenance.prune(line, rows_max=10)
    await blobs.delete(["blob"])
    await ArtifactCleanup(line, blobs, grace_seconds=0.0).tick()
    assert await is_complete(line, job)


async def test_one_that_cannot_be_deleted_holds_up_no_other_and_is_tried_again(
    line: Connection,
    blobs: BlobContainer,
    folder: Path,
    connection: AsyncpgConnection,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(retention, "ARTIFACT_ROWS_MAX", 2)
    stuck, *others = [await old_job(connection, blobs, f"blob-{at}") for at in range(5)]
    working = blobs.delete

    async def delete(keys: list[str]) -> None:
        if "blob-0" in keys:
            raise OSError("no deletion of secret today")
        await working(keys)

    monkeypatch.setattr(blobs, "delete", delete)
    await Pruner(line, blobs).tick()
    assert files(folder) == {"blob-0"}
    await ArtifactCleanup(line, blobs, grace_seconds=0.0).tick()
    assert [await is_complete(line, job) for job in (stuck, *others)] == [False, *[True] * 4]
    assert "secret" not in caplog.text, "a store's own words may quote what it was sent"
    monkeypatch.setattr(blobs, "delete", working)
    await ArtifactCleanup(line, blobs, grace_seconds=0.0).tick()
    assert files(folder) == set()
    assert await is_complete(line, stuck)
