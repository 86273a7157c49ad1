"""Inputs of jobs that have ended go within a tick, and so does whatever has lived too long."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from uuid import UUID

import pytest

from coatcheck.blobs import BlobContainer
from coatcheck.blobs.keys import input_key
from coatcheck.blobs.pieces import store_pieces
from coatcheck.core.queries import inputs, reports
from coatcheck.db.connection import Connection
from coatcheck.domain.ids import new_id
from coatcheck.domain.inputs import HeldCopy, Layer, Mechanism
from coatcheck.maintenance import retention
from coatcheck.maintenance.retention import InputExpirer
from coatcheck.settings import Settings
from tests.all_products import maintenance
from tests.db.claimer import claimer
from tests.db.edge_guard import AsyncpgConnection
from tests.db.input_rows import copy_in, end, let_expire, put_input, record_of
from tests.waiting import eventually_async

CANARY = b"canary 5f2c"


async def pieces_of_content() -> AsyncIterator[bytes]:
    for _ in range(3):
        yield CANARY


async def hand_in(line: Connection, blobs: BlobContainer) -> HeldCopy:
    """A queued job whose input lies in the store, in three pieces."""
    job: UUID = new_id()
    key = input_key(await reports.deployment(line), job)
    await store_pieces(blobs, key, pieces_of_content(), piece_bytes=len(CANARY))
    return await put_input(line, key, uuid=job)


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


async def test_the_input_of_an_ended_job_is_deleted_and_its_record_says_so(
    line: Connection, blobs: BlobContainer, folder: Path, connection: AsyncpgConnection
) -> None:
    ended, waiting = await hand_in(line, blobs), await hand_in(line, blobs)
    await end(connection, ended)
    await InputExpirer(line, blobs).tick()
    assert {path.parent.name for path in files(folder)} == {Path(waiting.place).name}
    blob = await copy_in(line, Layer.BLOB, ended)
    assert blob.mechanism is Mechanism.UPKEEP
    assert (await record_of(line, ended)).complete
    assert (await copy_in(line, Layer.BLOB, waiting)).deleted_at is None


async def test_an_input_that_lived_too_long_is_deleted_while_its_job_runs(
    dsn: str, line: Connection, blobs: BlobContainer, folder: Path, connection: AsyncpgConnection
) -> None:
    copy = await hand_in(line, blobs)
    async with claimer(dsn) as worker:
        (job,) = await worker.claim(1)
        await let_expire(connection, copy)
        await InputExpirer(line, blobs).tick()
        assert files(folder) == []
        assert (await copy_in(line, Layer.BLOB, copy)).mechanism is Mechanism.TTL
        assert (await copy_in(line, Layer.DATABASE, copy)).deleted_at is None
        await worker.complete(job)
    await InputExpirer(line, blobs).tick()
    left = await connection.fetchval("SELECT count(*) FROM input_copies WHERE deleted_at IS NULL")
    assert left == 0


def refuse(
    monkeypatch: pytest.MonkeyPatch, blobs: BlobContainer, refused: str
) -> Callable[[], None]:
    """Let the store fail to delete what lies under ``refused``, until told to work again."""
    working = blobs.delete

    async def delete(keys: list[str]) -> None:
        if any(key.startswith(refused) for key in keys):
            raise OSError(f"no deletion today: {CANARY.decode()}")
        await working(keys)

    monkeypatch.setattr(blobs, "delete", delete)
    return lambda: monkeypatch.setattr(blobs, "delete", working)


async def test_an_input_that_cannot_be_deleted_holds_up_no_other_and_is_tried_again(
    line: Connection,
    blobs: BlobContainer,
    folder: Path,
    connection: AsyncpgConnection,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(retention, "INPUT_ROWS_MAX", 2)
    stuck, *others = [await hand_in(line, blobs) for _ in range(5)]
    for copy in (stuck, *others):
        await end(connection, copy)
    work_again = refuse(monkeypatch, blobs, stuck.place)
    forgetter = InputExpirer(line, blobs)
    with caplog.at_level(logging.INFO):
        await forgetter.tick()
    assert {path.parent.name for path in files(folder)} == {Path(stuck.place).name}
    assert (await copy_in(line, Layer.BLOB, stuck)).deleted_at is None
    assert "OSError" in caplog.text
    assert CANARY.decode() not in caplog.text, "a store's own words may quote what it was sent"
    work_again()
    await forgetter.tick()
    assert files(folder) == []
    assert (await record_of(line, stuck)).complete


async def test_a_blob_that_was_deleted_before_its_record_was_closed_is_no_error(
    line: Connection, blobs: BlobContainer, folder: Path, connection: AsyncpgConnection
) -> None:
    copy = await hand_in(line, blobs)
    await end(connection, copy)
    for path in files(folder):
        path.unlink()
    await InputExpirer(line, blobs).tick()
    assert (await record_of(line, copy)).complete


async def test_a_record_is_forgotten_when_its_time_is_over(
    line: Connection, blobs: BlobContainer, connection: AsyncpgConnection
) -> None:
    copy = await hand_in(line, blobs)
    await end(connection, copy)
    await connection.execute("UPDATE job_inputs SET forget_at = now()")
    await InputExpirer(line, blobs).tick()
    assert await inputs.record(line, copy.org, copy.job) is None


async def test_every_process_that_keeps_up_deletes_inputs(
    dsn: str, line: Connection, blobs: BlobContainer, folder: Path, connection: AsyncpgConnection
) -> None:
    copy = await hand_in(line, blobs)
    upkeep = maintenance(Settings(database_url=dsn, blob_url=folder.as_uri()))
    upkeep.start()
    try:
        await end(connection, copy)

        async def is_gone() -> bool:
            return (await record_of(line, copy)).complete

        await eventually_async(is_gone, "the input is deleted")
    finally:
        await upkeep.stop()
    assert files(folder) == []
