"""Kills the worker, and PostgreSQL, at every point of taking a list in, of a latch and of a rerun.

Afterwards no task is there twice, none is missing, the total is right, and the run completes once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest

from coatcheck.blobs import BlobContainer
from coatcheck.blobs.pieces import store_pieces
from coatcheck.core.queries import reports
from coatcheck.db.connection import Connection
from coatcheck.db.embedded import EmbeddedPostgres
from coatcheck.db.migrate import migrate
from coatcheck.domain.ids import new_id, to_text
from coatcheck.encoding import encode
from coatcheck.maintenance.retention import OrphanBlobSweeper
from coatcheck.products.batches.executor import BatchExecutor
from coatcheck.products.batches.maintenance import BatchSweeper
from coatcheck.products.batches.model import BatchState, BatchView, NewPart, RunFilter, list_key
from coatcheck.products.batches.repository import BatchRepository
from tests.crash_points import IS_THOROUGH, VICTIM
from tests.deployment import Deployment
from tests.e2e.faults.process import new_batch
from tests.e2e.faults.roles import end_leases_of_the_struck, executions, payload, start_role
from tests.e2e.faults.services import lab
from tests.e2e.test_batch_crash_points import ORG, ends, is_consistent
from tests.waiting import eventually_async

INGEST_POINTS = {
    "ingest.chunk_not_committed": (1, 2) if IS_THOROUGH else (2,),
    "ingest.chunk_committed": (1, 2, 3) if IS_THOROUGH else (2,),
    "ingest.before_latch": (1,),
    "ingest.latched": (1,),
    "rerun.chunk_not_committed": (1,),
    "rerun.chunk_committed": (1,),
    "reconcile.before_resubmit": (1,),
}
"""Each point, and at which passing of it to die."""

TASKS = 50
BAD_LINES = 5
LINE_BYTES = 200_000
"""So long that the list is of several chunks: a chunk has 4 MiB."""

GATE = 4712
"""The advisory lock that holds a statement up."""
HELD_UP_AT = {
    "a chunk": "NEW.tasks > OLD.tasks AND OLD.tasks > 0",
    "the latch": "NEW.latched_at IS NOT NULL AND OLD.latched_at IS NULL AND NEW.number = 1",
    "a rerun": "NEW.number = 2 AND NEW.tasks > OLD.tasks",
}
"""What PostgreSQL is killed in the middle of, by which update of the run it is known."""


@pytest.fixture
async def deployment(dsn: str, tmp_path: Path) -> AsyncIterator[Deployment]:
    async with Deployment(dsn, tmp_path, servers=0) as opened:
        yield opened


@pytest.fixture
async def deployment_on_own_server(
    pg_server: EmbeddedPostgres, tmp_path: Path
) -> AsyncIterator[Deployment]:
    await migrate(pg_server.dsn)
    async with Deployment(pg_server.dsn, tmp_path, servers=0) as opened:
        yield opened
        if not pg_server.is_running():
            await asyncio.to_thread(pg_server.start)


async def create(deployment: Deployment) -> str:
    """A batch whose list, of several chunks and with bad lines, waits to be taken in."""
    new = new_batch(None)
    part = new_id()
    line = encode(payload(deployment))
    line = line[:-1] + b" " * (LINE_BYTES - len(line)) + b"}\n"

    async def body() -> AsyncIterator[bytes]:
        for number in range(TASKS):
            yield line
            if number % (TASKS // BAD_LINES) == 0:
                yield b"oops\n"

    database = await _deployment(deployment)
    stored = await store_pieces(deployment.engine.blobs, list_key(database, new.uuid, part), body())
    await deployment.engine.extension(BatchRepository).create(
        new,
        NewPart(
            part,
            "pieces",
            source_key=stored.key,
            source_pieces=stored.pieces,
            source_bytes=stored.size,
        ),
    )
    return to_text(new.uuid)


@asynccontextmanager
async def everybody_works(deployment: Deployment) -> AsyncIterator[None]:
    """Upkeep, and a worker for lists and one for tasks, in this process."""
    deployment.start_maintenance()
    await deployment.start_worker(lab)
    async with BatchExecutor(deployment.settings, deployment.database) as executor:
        worker = await deployment.run_worker(executor.worker())
        yield
        await deployment.stop_worker(worker)


async def converged(
    deployment: Deployment, batch: str, runs: int = 1, *, ran_once: bool = True
) -> BatchView:
    view = await ends(deployment, batch)
    assert view.status is BatchState.COMPLETED
    assert len(view.runs) == runs
    for run in view.runs:
        assert (run.counts.total, run.counts.succeeded) == (TASKS, TASKS)
    assert (view.runs[0].lines, view.runs[0].bad_lines) == (TASKS + BAD_LINES, BAD_LINES)
    bad, _ = await deployment.engine.extension(BatchRepository).dead_letters.bad_lines(
        view, view.runs[0]
    )
    assert [each.line for each in bad] == [2, 13, 24, 35, 46]
    ran = len(executions(deployment))
    assert ran == TASKS * runs if ran_once else ran >= TASKS * runs, "each task ran"
    await is_consistent(deployment, view)
    await _sweep(deployment)
    assert [path for path in (deployment.folder / "blobs").rglob("*") if path.is_file()] == []
    return view


@pytest.mark.crash
@pytest.mark.parametrize(
    ("point", "nth"),
    [
        (point, nth)
        for point, passings in INGEST_POINTS.items()
        for nth in passings
        if point.startswith("ingest.")
    ],
)
async def test_a_list_is_taken_in_once_though_its_worker_dies_at(
    deployment: Deployment, point: str, nth: int
) -> None:
    batch = await create(deployment)
    process = start_role(deployment, "batch_worker", crash_at=f"{point}:{nth}")
    await deployment.strike(process)
    await end_leases_of_the_struck(deployment)

    async with everybody_works(deployment):
        await converged(deployment, batch, ran_once=VICTIM.is_exact)
    print(f"{point}:{nth}: {VICTIM.value} struck there, {TASKS} tasks, one completion")


@pytest.mark.crash
@pytest.mark.parametrize("point", ["rerun.chunk_not_committed", "rerun.chunk_committed"])
async def test_a_rerun_is_taken_in_once_though_its_worker_dies_at(
    deployment: Deployment, point: str
) -> None:
    batch = await create(deployment)
    async with everybody_works(deployment):
        await converged(deployment, batch)
    await deployment.engine.extension(BatchRepository).rerun(batch, RunFilter(), org=ORG)
    process = start_role(deployment, "batch_worker", crash_at=f"{point}:1")
    await deployment.strike(process)
    if VICTIM.is_exact:
        await deployment.sql.execute(
            "UPDATE workers SET last_seen_at = now() - interval '1 hour' WHERE endpoints = $1",
            await deployment.sql.fetchval(
                "SELECT endpoints FROM workers ORDER BY boot DESC LIMIT 1"
            ),
        )

    async with BatchExecutor(deployment.settings, deployment.database) as executor:
        worker = await deployment.run_worker(executor.worker())
        await converged(deployment, batch, runs=2, ran_once=VICTIM.is_exact)
        await deployment.stop_worker(worker)


@pytest.mark.crash
async def test_a_lost_list_is_found_though_the_one_who_found_it_first_dies(
    deployment: Deployment,
) -> None:
    batch = await create(deployment)
    await deployment.sql.execute("DELETE FROM jobs")
    process = start_role(deployment, "upkeep", crash_at="reconcile.before_resubmit:1")
    await deployment.strike(process)
    if VICTIM.is_exact:
        assert await deployment.sql.fetchval("SELECT count(*) FROM jobs") == 0

    async with everybody_works(deployment):
        await converged(deployment, batch, ran_once=VICTIM.is_exact)
    assert await deployment.sql.fetchval("SELECT redrives FROM batch_parts") == 1


@pytest.mark.crash
@pytest.mark.parametrize("what", sorted(HELD_UP_AT))
async def test_a_list_is_taken_in_once_though_postgresql_dies_in_the_middle_of(
    deployment_on_own_server: Deployment, pg_server: EmbeddedPostgres, what: str
) -> None:
    deployment = deployment_on_own_server
    await deployment.sql.execute(
        f"""
        CREATE FUNCTION wait_for_the_gate() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_advisory_xact_lock({GATE}); RETURN NEW; END $$;
        CREATE TRIGGER wait_for_the_gate BEFORE UPDATE ON runs FOR EACH ROW
        WHEN ({HELD_UP_AT[what]})
        EXECUTE FUNCTION wait_for_the_gate()
        """
    )
    batch = await create(deployment)
    await deployment.sql.execute("SELECT pg_advisory_lock($1)", GATE)

    async with everybody_works(deployment):
        if what == "a rerun":
            await converged(deployment, batch)
            await deployment.engine.extension(BatchRepository).rerun(batch, RunFilter(), org=ORG)
        await deployment.wait_until_blocked("coatcheck pool")
        await asyncio.to_thread(pg_server.kill)  # and with it goes the gate
        await asyncio.to_thread(pg_server.start)
        await deployment.reconnect()
        # A claim that went with the server may have been acted on: execution is at least once.
        runs = 2 if what == "a rerun" else 1
        await converged(deployment, batch, runs, ran_once=False)


async def _deployment(deployment: Deployment) -> UUID:
    line = Connection(deployment.dsn, name="deployment")
    try:
        return await reports.deployment(line)
    finally:
        await line.close()


async def _sweep(deployment: Deployment) -> None:
    """Sweep orphans, however young. A list that was taken in is one, if it was not deleted."""
    line = Connection(deployment.dsn, name="sweep")
    blobs = BlobContainer.open(deployment.settings.blob_url)

    async def done() -> bool:
        left: int = await deployment.sql.fetchval(
            "SELECT count(*) FROM jobs WHERE run_id IS NULL AND finished_at IS NULL"
        )
        return left == 0

    await eventually_async(done, "no ingest job is left over")
    await OrphanBlobSweeper(line, blobs, grace=timedelta(0)).tick()
    await BatchSweeper(line, blobs, grace=timedelta(0)).tick()
    await line.close()
