"""Kills a process at every crash point there is, then asks the invariants of what is left.

Those of jobs that are handed in with an input have a sweep of their own (test_input_crash_points),
and so have those of archives (canary/test_canary), webhooks (test_webhook_crash_points), chats
(test_llm_crash_points, test_llm_stream_crash_points), batches (test_batch_crash_points,
test_ingest_crash_points, test_removal_crash_points) and what remotes do (test_remote_crash_points).

`pytest -s` shows one line a point. The clock (invariant L) is in faults/test_worker_clock.py, and
PostgreSQL itself dies in faults/test_lost_commits.py.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

import coatcheck
from coatcheck import State, Ticket
from coatcheck.blobs import BlobContainer
from coatcheck.crash import CRASH_POINTS
from coatcheck.db.connection import Connection
from coatcheck.maintenance.retention import ArtifactCleanup, OrphanBlobSweeper
from tests.crash_points import VICTIM
from tests.deployment import Deployment
from tests.e2e.canary.test_canary import ARCHIVE_POINTS
from tests.e2e.faults import history, invariants
from tests.e2e.faults.crash_scenarios import SCENARIOS, Scenario, Submission
from tests.e2e.faults.roles import end_leases_of_the_struck, executions_of, wait_until_executed
from tests.e2e.faults.services import lab
from tests.e2e.test_batch_crash_points import BATCH_POINTS
from tests.e2e.test_ingest_crash_points import INGEST_POINTS
from tests.e2e.test_input_crash_points import INPUT_POINTS
from tests.e2e.test_llm_crash_points import LLM_POINTS
from tests.e2e.test_llm_stream_crash_points import STREAM_POINTS
from tests.e2e.test_remote_crash_points import REMOTE_POINTS
from tests.e2e.test_removal_crash_points import EXPORT_POINTS, REMOVAL_POINTS
from tests.e2e.test_stripe_crash_points import STRIPE_POINTS
from tests.e2e.test_webhook_crash_points import WEBHOOK_POINTS
from tests.waiting import eventually_async


@pytest.fixture
async def deployment(dsn: str, tmp_path: Path) -> AsyncIterator[Deployment]:
    async with Deployment(dsn, tmp_path, servers=0) as opened:
        await history.keep(opened.sql)
        yield opened


def test_every_crash_point_has_a_scenario_and_a_place_in_the_code() -> None:
    sources = Path(coatcheck.__file__).parent.rglob("*.py")
    code = "\n".join(path.read_text() for path in sources if path.name != "crash.py")
    named = set(re.findall(r'"([a-z_]+\.[a-z0-9_]+)"', code))

    elsewhere = ARCHIVE_POINTS.union(
        INPUT_POINTS,
        WEBHOOK_POINTS,
        BATCH_POINTS,
        INGEST_POINTS,
        EXPORT_POINTS,
        REMOVAL_POINTS,
        LLM_POINTS,
        STREAM_POINTS,
        REMOTE_POINTS,
        STRIPE_POINTS,
    )
    assert elsewhere.union(SCENARIOS) == CRASH_POINTS
    assert named >= CRASH_POINTS


@pytest.mark.crash
@pytest.mark.parametrize("point", sorted(SCENARIOS))
async def test_the_invariants_hold_after_a_crash_at(deployment: Deployment, point: str) -> None:
    scenario = SCENARIOS[point]
    submission = scenario.submission(deployment, key=point)
    ticket = await _crash(deployment, scenario, point, submission)
    await invariants.no_dead_state(deployment)
    if scenario.pruned:
        await _pruned_with_all_it_left(deployment, ticket)
    else:
        await _ended_as_it_should(deployment, scenario, submission, ticket)
    print(f"{point}: {VICTIM.value} struck there, invariants hold")


async def _crash(
    deployment: Deployment, scenario: Scenario, point: str, submission: Submission
) -> Ticket | None:
    """Let the process die at its point. The job it worked on, if that was acknowledged before."""
    ticket = None
    if not scenario.submits:
        ticket = await deployment.engine.submit(**submission)  # type: ignore[arg-type]
        if scenario.before is not None:
            await scenario.before(deployment, ticket)
    process = scenario.start(deployment, point, submission, ticket)
    if scenario.terminate:
        assert ticket is not None
        await wait_until_executed(deployment, ticket)
        process.interrupt()
    await deployment.strike(process)
    if VICTIM.is_exact:
        assert process.said("acknowledged") == []
    elif scenario.endpoint == "wait_first" and not scenario.terminate:
        process.interrupt()  # its handler would wait for ever
    return ticket


async def _ended_as_it_should(
    deployment: Deployment, scenario: Scenario, submission: Submission, ticket: Ticket | None
) -> None:
    replayed = await invariants.one_key_one_job(deployment, submission)
    assert ticket is None or replayed.id == ticket.id, "what was acknowledged is there"
    if scenario.role == "worker":
        await end_leases_of_the_struck(deployment)
    deployment.start_maintenance()
    if scenario.role != "cancel":  # there, the holder of the job is alive
        await deployment.start_worker(lab)
    view = await deployment.wait_for_end(replayed)

    assert view.state is scenario.end
    assert (view.failures, view.unreachables) == (scenario.failures, 0)
    assert VICTIM.allows(view.crashes, scenario.crashes)
    assert VICTIM.allows(view.interruptions, scenario.interruptions)
    assert VICTIM.allows(executions_of(deployment, replayed), scenario.executions)
    await invariants.one_end(deployment, view)
    await invariants.stale_writes_change_nothing(deployment, view)
    assert (await invariants.one_key_one_job(deployment, submission)).id == replayed.id
    if view.state is State.COMPLETED and scenario.endpoint == "report":
        assert len(await deployment.engine.artifacts(view.id)) == 1
        assert len(await _blobs_after_a_sweep(deployment)) == 1


async def _pruned_with_all_it_left(deployment: Deployment, ticket: Ticket | None) -> None:
    assert ticket is not None
    deployment.start_maintenance()
    for table, column in (("jobs", "id"), ("job_events", "job_id"), ("artifacts", "job_id")):
        await eventually_async(
            lambda table=table, column=column: deployment.sql.fetchval(
                f"SELECT count(*) = 0 FROM {table} WHERE {column} = $1", ticket.uuid
            ),
            f"nothing of the job is left in {table}",
        )
    await _artifacts_are_receipted_for(deployment, ticket)
    assert await _blobs_after_a_sweep(deployment) == []


async def _artifacts_are_receipted_for(deployment: Deployment, ticket: Ticket) -> None:
    """What the dead left is deleted by the keeper, and then said to be gone."""
    line = Connection(deployment.dsn, name="keeper")
    blobs = BlobContainer.open(deployment.settings.blob_url)
    await ArtifactCleanup(line, blobs, grace_seconds=0.0).tick()
    await line.close()
    closed = await deployment.sql.fetchval(
        "SELECT count(*) FROM artifact_records WHERE job_id = $1 AND deleted_at IS NOT NULL",
        ticket.uuid,
    )
    assert closed == 1
    assert [*(deployment.folder / "blobs").rglob("artifacts/*/*/*")] == []


async def _blobs_after_a_sweep(deployment: Deployment) -> list[Path]:
    """What is in the container once orphans, however young, are swept."""
    line = Connection(deployment.dsn, name="sweep")
    blobs = BlobContainer.open(deployment.settings.blob_url)
    await OrphanBlobSweeper(line, blobs, grace=timedelta(0)).tick()
    await line.close()
    return [path for path in (deployment.folder / "blobs").rglob("*") if path.is_file()]
