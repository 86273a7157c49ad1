"""Lists whose job was lost or has ended without them are found, and runs whose latch was lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coatcheck.domain.ids import to_text
from coatcheck.products.batches import ingest_repository as ingest
from coatcheck.products.batches.ingest_repository import TaskBlock, encode, ingest_job
from coatcheck.products.batches.maintenance import RESUBMITS_MAX, IngestReconciler
from coatcheck.products.batches.model import BatchState, NewPart
from tests.db.edge_guard import unguarded
from tests.db.rows import recorded
from tests.products.batches.ingest_deployment import ORG, OWNER, IngestDeployment


@pytest.fixture
async def deployment(dsn: str, tmp_path: Path) -> AsyncIterator[IngestDeployment]:
    async with IngestDeployment(dsn, tmp_path) as opened:
        yield opened


@pytest.fixture
def reconciler(deployment: IngestDeployment) -> IngestReconciler:
    return IngestReconciler(deployment.ingest_connection, deployment.notifier)


async def end_job(deployment: IngestDeployment, part: NewPart, state: str) -> None:
    """Let the job that takes a part in have ended without doing so."""
    row = await deployment.part_row(part)
    async with unguarded(deployment.sql):
        await deployment.sql.execute(
            recorded("""
            UPDATE jobs SET state = $2::text::job_state, payload = NULL, finished_at = now(),
                            expires_at = now() + interval '1 hour', error_code = 'boom',
                            error_message = 'it went off'
            WHERE id = $1
            """),
            row["ingest_job"],
            state,
        )


async def test_a_list_whose_job_waits_or_runs_is_left_alone(
    deployment: IngestDeployment, reconciler: IngestReconciler
) -> None:
    _, part = await deployment.create(b"1\n")
    before = await deployment.part_row(part)
    await reconciler.tick()

    assert await deployment.part_row(part) == before


@pytest.mark.parametrize("how", ["never given", "pruned", "completed", "cancelled"])
async def test_a_list_that_lost_its_job_gets_another(
    deployment: IngestDeployment, reconciler: IngestReconciler, how: str
) -> None:
    new, part = await deployment.create(b"1\n")
    before = (await deployment.part_row(part))["ingest_job"]
    if how == "never given":
        await deployment.sql.execute("UPDATE batch_parts SET ingest_job = NULL")
    elif how == "pruned":
        await deployment.sql.execute("DELETE FROM jobs WHERE id = $1", before)
    else:
        await end_job(deployment, part, how)
    await reconciler.tick()

    row = await deployment.part_row(part)
    job = await deployment.sql.fetchrow("SELECT * FROM jobs WHERE id = $1", row["ingest_job"])
    assert job is not None
    assert (row["ingest_job"] != before, job["state"], row["redrives"]) == (True, "queued", 1)
    await deployment.ingest(part)
    assert (await deployment.view(new)).current.counts.total == 1


async def test_a_list_that_keeps_losing_its_job_becomes_a_dead_letter(
    deployment: IngestDeployment, reconciler: IngestReconciler
) -> None:
    new, part = await deployment.create(b"1\n")
    for _ in range(RESUBMITS_MAX):
        await end_job(deployment, part, "completed")
        await reconciler.tick()
        assert (await deployment.part_row(part))["state"] == "pending"
    await end_job(deployment, part, "completed")
    await reconciler.tick()

    view = await deployment.view(new)
    assert (view.status, view.current.error_code) == (BatchState.FAILED_INGEST, "ingest_lost")


async def test_a_list_whose_job_failed_for_good_becomes_a_dead_letter_with_its_error(
    deployment: IngestDeployment, reconciler: IngestReconciler
) -> None:
    new, part = await deployment.create(b"1\n")
    await end_job(deployment, part, "failed")
    await reconciler.tick()

    (letter,) = await deployment.batches.dead_letters.page(ORG, owner=OWNER)
    assert (letter.uuid, letter.error_code, letter.error_message) == (
        part.uuid,
        "boom",
        "it went off",
    )
    assert (await deployment.view(new)).status is BatchState.FAILED_INGEST


@pytest.mark.parametrize("how", ["cancel", "delete"])
async def test_what_nobody_wants_any_more_gets_no_job(
    deployment: IngestDeployment, reconciler: IngestReconciler, how: str
) -> None:
    new, part = await deployment.create(b"1\n")
    await deployment.sql.execute("UPDATE batch_parts SET ingest_job = NULL")
    await getattr(deployment.batches, how)(to_text(new.uuid), org=ORG)
    await reconciler.tick()

    assert (await deployment.part_row(part))["ingest_job"] is None


async def test_two_reconcilers_give_a_list_one_job(deployment: IngestDeployment) -> None:
    _, part = await deployment.create(b"1\n")
    await deployment.sql.execute("UPDATE batch_parts SET ingest_job = NULL")
    (lost,) = await ingest.lost_parts(deployment.ingest_connection, 10)
    jobs = [ingest_job(ORG, part.uuid, None) for _ in range(2)]
    given = [await ingest.assign_job(deployment.ingest_connection, lost, job) for job in jobs]

    assert given == [True, False]
    written = await deployment.sql.fetchval(
        "SELECT count(*) FROM jobs WHERE id = ANY ($1)", [job.uuid for job in jobs]
    )
    assert written == 1


async def test_a_reconciler_that_comes_late_leaves_a_list_that_was_redriven(
    deployment: IngestDeployment, reconciler: IngestReconciler
) -> None:
    _, part = await deployment.create(b"1\n")
    await end_job(deployment, part, "failed")
    (lost,) = await ingest.lost_parts(deployment.ingest_connection, 10)
    await reconciler.tick()
    again = ingest_job(ORG, part.uuid, None)
    assert await ingest.redrive(deployment.ingest_connection, part.uuid, None, again)

    assert not await ingest.fail_part(
        deployment.ingest_connection, ORG, lost.part, "boom", "it went off", lost.ingest_job
    )
    assert (await deployment.part_row(part))["state"] == "pending"


async def test_a_run_whose_latch_was_lost_is_latched(
    deployment: IngestDeployment, reconciler: IngestReconciler
) -> None:
    new, part = await deployment.create(b"1\n")
    order = await ingest.read_snapshot(deployment.ingest_connection, ORG, part.uuid)
    assert order is not None
    block = TaskBlock([b"1"], [None], None, (), 1, 2)
    await ingest.write_chunk(
        deployment.ingest_connection, order, await encode(order, 0, [block]), is_last=True
    )
    assert (await deployment.run_row(new.run))["latched_at"] is None
    await reconciler.tick()

    row = await deployment.run_row(new.run)
    assert (row["total"], row["latched_at"] is not None) == (1, True)


async def test_runs_that_are_open_or_wait_for_a_list_are_not_latched(
    deployment: IngestDeployment, reconciler: IngestReconciler
) -> None:
    waiting, _ = await deployment.create(b"1\n")
    opened, part = await deployment.create(b"1\n", is_open=True)
    await deployment.ingest(part)
    failed, bad = await deployment.create(b"oops\n")
    await ingest.fail_part(deployment.ingest_connection, ORG, bad.uuid, "code", "message")
    await reconciler.tick()

    for new in (waiting, opened, failed):
        assert (await deployment.run_row(new.run))["latched_at"] is None
