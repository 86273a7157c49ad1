"""Lists whose job was lost or has ended without them are found, and runs whose latch was lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coatcheck.domain.ids import to_text
from coatcheck.products.batches.dead_letter_repository import ingest_job
from coatcheck.products.batches.maintenance import RESUBMITS_MAX, IngestReconciler
from coatcheck.products.batches.model import BatchState, NewPart
from coatcheck.products.batches.queries import ingest
from coatcheck.products.batches.queries.task_copy import TaskBlock, encode
from tests.db.edge_guard import unguarded
from tests.products.batches.intake import ORG, OWNER, Intake


@pytest.fixture
async def intake(dsn: str, tmp_path: Path) -> AsyncIterator[Intake]:
    async with Intake(dsn, tmp_path) as opened:
        yield opened


@pytest.fixture
def reconciler(intake: Intake) -> IngestReconciler:
    return IngestReconciler(intake.line, intake.notifier)


async def end_job(intake: Intake, part: NewPart, state: str) -> None:
    """Let the job that takes a part in have ended without doing so."""
    row = await intake.part_row(part)
    async with unguarded(intake.sql):
        await intake.sql.execute(
            """
            UPDATE jobs SET state = $2::text::job_state, payload = NULL, finished_at = now(),
                            expires_at = now() + interval '1 hour', error_code = 'boom',
                            error_message = 'it went off'
            WHERE id = $1
            """,
            row["ingest_job"],
            state,
        )


async def test_a_list_whose_job_waits_or_runs_is_left_alone(
    intake: Intake, reconciler: IngestReconciler
) -> None:
    _, part = await intake.create(b"1\n")
    before = await intake.part_row(part)
    await reconciler.tick()

    assert await intake.part_row(part) == before


@pytest.mark.parametrize("how", ["never given", "pruned", "completed", "cancelled"])
async def test_a_list_that_lost_its_job_gets_another(
    intake: Intake, reconciler: IngestReconciler, how: str
) -> None:
    new, part = await intake.create(b"1\n")
    before = (await intake.part_row(part))["ingest_job"]
    if how == "never given":
        await intake.sql.execute("UPDATE batch_parts SET ingest_job = NULL")
    elif how == "pruned":
        await intake.sql.execute("DELETE FROM jobs WHERE id = $1", before)
    else:
        await end_job(intake, part, how)
    await reconciler.tick()

    row = await intake.part_row(part)
    job = await intake.sql.fetchrow("SELECT * FROM jobs WHERE id = $1", row["ingest_job"])
    assert job is not None
    assert (row["ingest_job"] != before, job["state"], row["redrives"]) == (True, "queued", 1)
    await intake.take_in(part)
    assert (await intake.view(new)).current.counts.total == 1


async def test_a_list_that_keeps_losing_its_job_becomes_a_dead_letter(
    intake: Intake, reconciler: IngestReconciler
) -> None:
    new, part = await intake.create(b"1\n")
    for _ in range(RESUBMITS_MAX):
        await end_job(intake, part, "completed")
        await reconciler.tick()
        assert (await intake.part_row(part))["state"] == "pending"
    await end_job(intake, part, "completed")
    await reconciler.tick()

    view = await intake.view(new)
    assert (view.status, view.current.error_code) == (BatchState.FAILED_INGEST, "ingest_lost")


async def test_a_list_whose_job_failed_for_good_becomes_a_dead_letter_with_its_error(
    intake: Intake, reconciler: IngestReconciler
) -> None:
    new, part = await intake.create(b"1\n")
    await end_job(intake, part, "failed")
    await reconciler.tick()

    (letter,) = await intake.batches.dead_letters.page(ORG, owner=OWNER)
    assert (letter.uuid, letter.error_code, letter.error_message) == (
        part.uuid,
        "boom",
        "it went off",
    )
    assert (await intake.view(new)).status is BatchState.FAILED_INGEST


@pytest.mark.parametrize("how", ["cancel", "delete"])
async def test_what_nobody_wants_any_more_gets_no_job(
    intake: Intake, reconciler: IngestReconciler, how: str
) -> None:
    new, part = await intake.create(b"1\n")
    await intake.sql.execute("UPDATE batch_parts SET ingest_job = NULL")
    await getattr(intake.batches, how)(to_text(new.uuid), org=ORG)
    await reconciler.tick()

    assert (await intake.part_row(part))["ingest_job"] is None


async def test_two_reconcilers_give_a_list_one_job(intake: Intake) -> None:
    _, part = await intake.create(b"1\n")
    await intake.sql.execute("UPDATE batch_parts SET ingest_job = NULL")
    (lost,) = await ingest.lost_parts(intake.line, 10)
    jobs = [ingest_job(ORG, part.uuid, None) for _ in range(2)]
    given = [await ingest.assign_job(intake.line, lost, job) for job in jobs]

    assert given == [True, False]
    written = await intake.sql.fetchval(
        "SELECT count(*) FROM jobs WHERE id = ANY ($1)", [job.uuid for job in jobs]
    )
    assert written == 1


async def test_a_reconciler_that_comes_late_leaves_a_list_that_was_redriven(
    intake: Intake, reconciler: IngestReconciler
) -> None:
    _, part = await intake.create(b"1\n")
    await end_job(intake, part, "failed")
    (lost,) = await ingest.lost_parts(intake.line, 10)
    await reconciler.tick()
    again = ingest_job(ORG, part.uuid, None)
    assert await ingest.redrive(intake.line, ORG, part.uuid, None, again)

    assert not await ingest.fail_part(
        intake.line, ORG, lost.part, "boom", "it went off", lost.ingest_job
    )
    assert (await intake.part_row(part))["state"] == "pending"


async def test_a_run_whose_latch_was_lost_is_latched(
    intake: Intake, reconciler: IngestReconciler
) -> None:
    new, part = await intake.create(b"1\n")
    order = await ingest.read_snapshot(intake.line, ORG, part.uuid)
    assert order is not None
    block = TaskBlock([b"1"], [None], None, (), 1, 2)
    await ingest.write_chunk(intake.line, order, await encode(order, 0, [block]), is_last=True)
    assert (await intake.run_row(new.run))["latched_at"] is None
    await reconciler.tick()

    row = await intake.run_row(new.run)
    assert (row["total"], row["latched_at"] is not None) == (1, True)


async def test_runs_that_are_open_or_wait_for_a_list_are_not_latched(
    intake: Intake, reconciler: IngestReconciler
) -> None:
    waiting, _ = await intake.create(b"1\n")
    opened, part = await intake.create(b"1\n", is_open=True)
    await intake.take_in(part)
    failed, bad = await intake.create(b"oops\n")
    await ingest.fail_part(intake.line, ORG, bad.uuid, "code", "message")
    await reconciler.tick()

    for new in (waiting, opened, failed):
        assert (await intake.run_row(new.run))["latched_at"] is None
