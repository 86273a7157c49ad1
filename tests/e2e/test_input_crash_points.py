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
from tests.crash_points import VICTIM, Victim
from tests.deployment import Deployment
from tests.e2e.faults.process import CONTENT, submit_with_content
from tests.e2e.faults.roles import executions_of, payload, start_role
from tests.e2e.faults.services import lab
from tests.waiting import eventually_async

KEY = "k"
INPUT_POINTS = {
    "input.inserted_not_committed": ("hand_in",),
    "input.blob_deleted_not_marked": ("upkeep", "disposing_worker"),
    "input.marked": ("upkeep", "disposing_worker"),
}
"""Each point, and the roles of those who can die there."""


@pytest.fixture
async def deployment(dsn: str, tmp_path: Path) -> AsyncIterator[Deployment]:
    async with Deployment(dsn, tmp_path, servers=0) as opened:
        yield opened


@pytest.mark.crash
async def test_an_upload_whose_job_was_not_committed_is_swept_and_can_be_sent_again(
    deployment: Deployment,
) -> None:
    point = "input.inserted_not_committed"
    given = payload(deployment)
    process = start_role(deployment, "hand_in", json.dumps(given), KEY, crash_at=f"{point}:1")
    await deployment.strike(process)
    if VICTIM is Victim.PROCESS:  # only of the dead it is certain that nobody wants it any more
        assert await deployment.sql.fetchval("SELECT count(*) FROM jobs") == 0
        assert await deployment.sql.fetchval("SELECT count(*) FROM job_inputs") == 0
        assert _blobs(deployment), "it died after the upload"
        await _sweep(deployment)
        assert _blobs(deployment) == []

    ticket = await submit_with_content(deployment.engine, given, KEY)
    assert ticket.created or not VICTIM.is_exact
    await _ends_without_a_trace(deployment, ticket)


@pytest.mark.crash
@pytest.mark.parametrize(
    ("point", "role"),
    [(point, role) for point, roles in INPUT_POINTS.items() for role in roles if role != "hand_in"],
)
async def test_nothing_is_left_of_an_input_after_a_crash_at(
    deployment: Deployment, point: str, role: str
) -> None:
    ticket = await submit_with_content(deployment.engine, payload(deployment), KEY)
    if role == "upkeep":
        worker = await deployment.start_worker(lab)
        await deployment.wait_for_end(ticket)
        await deployment.stop_worker(worker)
    process = start_role(deployment, role, crash_at=f"{point}:1")
    await deployment.strike(process)
    assert (await deployment.wait_for_end(ticket)).state is State.COMPLETED
    assert _blobs(deployment) == [], "it died after the deletion"
    if not VICTIM.is_exact:
        await _ends_without_a_trace(deployment, ticket)
        return
    marked = (await _record(deployment, ticket)).complete
    assert marked == (point == "input.marked")

    record = await _ends_without_a_trace(deployment, ticket)
    by = {copy.layer: copy.mechanism for copy in record.copies}
    was_marked_by_worker = marked and role == "disposing_worker"
    assert by[Layer.BLOB] is (Mechanism.WORKER if was_marked_by_worker else Mechanism.UPKEEP)
    assert executions_of(deployment, ticket) == 1


@pytest.mark.crash
async def test_a_worker_that_lives_deletes_the_input_itself(deployment: Deployment) -> None:
    ticket = await submit_with_content(deployment.engine, payload(deployment), KEY)
    process = start_role(deployment, "disposing_worker")
    await deployment.wait_for_end(ticket)
    assert await process.terminate() == 0, process.log
    record = await _record(deployment, ticket)
    assert record.complete
    assert [copy.mechanism for copy in record.copies] == [Mechanism.WORKER, Mechanism.END_OF_JOB]
    assert _blobs(deployment) == []


async def _ends_without_a_trace(deployment: Deployment, ticket: Ticket) -> InputRecord:
    """Run what is left to run, keep up, and look everywhere."""
    deployment.start_maintenance()
    await deployment.start_worker(lab)
    assert (await deployment.wait_for_end(ticket)).state is State.COMPLETED

    async def complete() -> InputRecord | None:
        record = await _record(deployment, ticket)
        return record if record.complete else None

    record: InputRecord = await eventually_async(complete, "every copy is deleted")
    await _sweep(deployment)
    assert _blobs(deployment) == []
    for path in files_below(deployment.folder):
        with suppress(FileNotFoundError):  # a worker removes what a dead one left, meanwhile
            assert CONTENT not in path.read_bytes(), path
    return record


async def _record(deployment: Deployment, ticket: Ticket) -> InputRecord:
    record = await deployment.engine.input_of(ticket.id)
    assert record is not None
    assert record.job == from_text(ticket.id)
    return record


async def _sweep(deployment: Deployment) -> None:
    """Sweep orphans, however young."""
    line = Connection(deployment.dsn, name="sweep")
    blobs = BlobContainer.open(deployment.settings.blob_url)
    await OrphanBlobSweeper(line, blobs, grace=timedelta(0)).tick()
    await line.close()


def _blobs(deployment: Deployment) -> list[Path]:
    return [path for path in (deployment.folder / "blobs").rglob("*") if path.is_file()]
