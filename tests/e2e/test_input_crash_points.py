"""Kills a process at every crash point on the way of an input; nothing of it may be left."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from chaos.files import files_below
from coatcheck import State, Ticket
from coatcheck.blobs import BlobContainer
from coatcheck.db.connection import Connection
from coatcheck.domain.ids import from_text
from coatcheck.domain.inputs import InputRecord, Layer, Mechanism
from coatcheck.maintenance.retention import OrphanBlobSweeper
from tests.e2e.faults.laboratory import Laboratory
from tests.e2e.faults.process import CONTENT, submit_with_content
from tests.e2e.faults.services import lab
from tests.e2e.faults.victims import VICTIM, Victim
from tests.waiting import eventually_async

KEY = "k"
INPUT_POINTS = {
    "input.inserted_not_committed": ("hand_in",),
    "input.blob_deleted_not_marked": ("upkeep", "disposing_worker"),
    "input.marked": ("upkeep", "disposing_worker"),
}
"""Each point, and the roles of those who can die there."""


@pytest.fixture
async def laboratory(dsn: str, tmp_path: Path) -> AsyncIterator[Laboratory]:
    async with Laboratory(dsn, tmp_path) as opened:
        yield opened


@pytest.mark.crash
async def test_an_upload_whose_job_was_not_committed_is_swept_and_can_be_sent_again(
    laboratory: Laboratory,
) -> None:
    point = "input.inserted_not_committed"
    payload = laboratory.payload()
    process = laboratory.start("hand_in", json.dumps(payload), KEY, crash_at=f"{point}:1")
    await laboratory.strike(process)
    if VICTIM is Victim.PROCESS:  # only of the dead it is certain that nobody wants it any more
        assert await laboratory.sql.fetchval("SELECT count(*) FROM jobs") == 0
        assert await laboratory.sql.fetchval("SELECT count(*) FROM job_inputs") == 0
        assert _blobs(laboratory), "it died after the upload"
        await _sweep(laboratory)
        assert _blobs(laboratory) == []

    ticket = await submit_with_content(laboratory.engine, payload, KEY)
    assert ticket.created or not VICTIM.is_exact
    await _ends_without_a_trace(laboratory, ticket)


@pytest.mark.crash
@pytest.mark.parametrize(
    ("point", "role"),
    [(point, role) for point, roles in INPUT_POINTS.items() for role in roles if role != "hand_in"],
)
async def test_nothing_is_left_of_an_input_after_a_crash_at(
    laboratory: Laboratory, point: str, role: str
) -> None:
    ticket = await submit_with_content(laboratory.engine, laboratory.payload(), KEY)
    if role == "upkeep":
        worker = await laboratory.start_worker(lab)
        await laboratory.end_of(ticket)
        await laboratory.drain(worker)
    process = laboratory.start(role, crash_at=f"{point}:1")
    await laboratory.strike(process)
    assert (await laboratory.end_of(ticket)).state is State.COMPLETED
    assert _blobs(laboratory) == [], "it died after the deletion"
    if not VICTIM.is_exact:
        await _ends_without_a_trace(laboratory, ticket)
        return
    marked = (await _record(laboratory, ticket)).complete
    assert marked == (point == "input.marked")

    record = await _ends_without_a_trace(laboratory, ticket)
    by = {copy.layer: copy.mechanism for copy in record.copies}
    was_marked_by_worker = marked and role == "disposing_worker"
    assert by[Layer.BLOB] is (Mechanism.WORKER if was_marked_by_worker else Mechanism.UPKEEP)
    assert laboratory.executions_of(ticket) == 1


@pytest.mark.crash
async def test_a_worker_that_lives_deletes_the_input_itself(laboratory: Laboratory) -> None:
    ticket = await submit_with_content(laboratory.engine, laboratory.payload(), KEY)
    process = laboratory.start("disposing_worker")
    await laboratory.end_of(ticket)
    assert await process.terminate() == 0, process.log
    record = await _record(laboratory, ticket)
    assert record.complete
    assert [copy.mechanism for copy in record.copies] == [Mechanism.WORKER, Mechanism.END_OF_JOB]
    assert _blobs(laboratory) == []


async def _ends_without_a_trace(laboratory: Laboratory, ticket: Ticket) -> InputRecord:
    """Run what is left to run, keep up, and look everywhere."""
    laboratory.start_upkeep()
    await laboratory.start_worker(lab)
    assert (await laboratory.end_of(ticket)).state is State.COMPLETED

    async def complete() -> InputRecord | None:
        record = await _record(laboratory, ticket)
        return record if record.complete else None

    record: InputRecord = await eventually_async(complete, "every copy is deleted")
    await _sweep(laboratory)
    assert _blobs(laboratory) == []
    for path in files_below(laboratory.folder):
        with suppress(FileNotFoundError):  # a worker removes what a dead one left, meanwhile
            assert CONTENT not in path.read_bytes(), path
    return record


async def _record(laboratory: Laboratory, ticket: Ticket) -> InputRecord:
    record = await laboratory.engine.input_of(ticket.id)
    assert record is not None
    assert record.job == from_text(ticket.id)
    return record


async def _sweep(laboratory: Laboratory) -> None:
    """Sweep orphans, however young."""
    line = Connection(laboratory.dsn, name="sweep")
    blobs = BlobContainer.open(laboratory.settings().blob_url)
    await OrphanBlobSweeper(line, blobs, grace=timedelta(0)).tick()
    await line.close()


def _blobs(laboratory: Laboratory) -> list[Path]:
    return [path for path in (laboratory.folder / "blobs").rglob("*") if path.is_file()]
