"""Kills who spawns, polls, finalizes and cancels what a remote does, at every point of the way.

The job ends once, the remote has one piece of work of it, and one file counts, or none. Databases,
remotes and whole workers go away in faults/test_remote_losses.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coatcheck import State
from tests.crash_points import VICTIM
from tests.deployment import Deployment
from tests.e2e.faults import history, invariants
from tests.e2e.faults.remote_jobs import FakeRenderer, RemoteJobs
from tests.e2e.faults.roles import start_role

SPAWN_POINTS = {
    "remote.begun": 0,
    "remote.spawned": 1,
    "remote.parked_not_committed": 1,
}
"""Deaths that cost an attempt, and how often the remote was asked for the work by then."""
RESULT_POINTS = frozenset(
    {
        "remote.parked",
        "remote.finalizing_not_committed",
        "remote.finalizing",
        "remote.kept",
        "remote.completed_not_committed",
        "remote.completed",
    }
)
END_POINTS = frozenset({"remote.cancelled", "remote.settled"})
REMOTE_POINTS = RESULT_POINTS.union(SPAWN_POINTS, END_POINTS)

pytestmark = pytest.mark.crash


@pytest.fixture
async def renderer() -> AsyncIterator[FakeRenderer]:
    async with FakeRenderer.running() as opened:
        yield opened


@pytest.fixture
async def jobs(dsn: str, tmp_path: Path, renderer: FakeRenderer) -> AsyncIterator[RemoteJobs]:
    async with Deployment(dsn, tmp_path, servers=0) as opened:
        await history.keep(opened.sql)
        yield RemoteJobs(opened, renderer.definition())


@pytest.mark.parametrize("point", sorted(SPAWN_POINTS))
async def test_work_is_found_again_after_a_crash_at(
    jobs: RemoteJobs, renderer: FakeRenderer, point: str
) -> None:
    ticket = await jobs.submit(retries=0)
    process = jobs.start_worker_process(crash_at=point)
    await jobs.deployment.strike(process)
    if VICTIM.is_exact:
        assert renderer.spawns_asked_for == SPAWN_POINTS[point]
    await invariants.no_dead_state(jobs.deployment)
    await jobs.end_leases_of_the_dead()

    async with jobs.working_here():
        view = await jobs.ended_with_nothing_left_over(ticket)
    assert (view.state, view.failures) == (State.COMPLETED, 0)
    assert VICTIM.allows(view.crashes, 1)
    assert list(renderer.works) == [view.execution_id]
    await invariants.stale_writes_change_nothing(jobs.deployment, view)


@pytest.mark.parametrize("point", sorted(RESULT_POINTS))
async def test_a_result_counts_once_after_a_crash_at(
    jobs: RemoteJobs, renderer: FakeRenderer, point: str
) -> None:
    ticket = await jobs.submit(retries=0)
    process = jobs.start_worker_process(crash_at=point)
    await jobs.deployment.strike(process)
    await invariants.no_dead_state(jobs.deployment)
    await jobs.end_leases_of_the_dead()

    async with jobs.working_here():
        view = await jobs.ended_with_nothing_left_over(ticket)
    assert (view.state, view.failures) == (State.COMPLETED, 0)
    assert VICTIM.allows(view.crashes, 0)
    assert list(renderer.works) == [view.execution_id]
    assert VICTIM.allows(renderer.spawns_asked_for, 1)
    await invariants.stale_writes_change_nothing(jobs.deployment, view)


async def test_a_result_counts_once_though_a_server_dies_that_stored_it(
    jobs: RemoteJobs, renderer: FakeRenderer
) -> None:
    ticket = await jobs.submit(retries=0)
    async with jobs.working_here(polling=False):
        await jobs.parked(ticket)
    process = start_role(jobs.deployment, "look", ticket.id, crash_at="remote.kept")
    await jobs.deployment.strike(process)
    if VICTIM.is_exact:
        assert await jobs.deployment.state(ticket) is State.FINALIZING
        assert len(await jobs.stored()) == 1
    await jobs.end_leases_of_the_dead()

    async with jobs.working_here():
        view = await jobs.ended_with_nothing_left_over(ticket)
    assert (view.state, view.crashes, view.failures) == (State.COMPLETED, 0, 0)
    assert list(renderer.works) == [view.execution_id]


@pytest.mark.parametrize("point", sorted(END_POINTS))
async def test_a_cancelled_job_leaves_nothing_after_a_crash_at(
    jobs: RemoteJobs, renderer: FakeRenderer, point: str
) -> None:
    renderer.at_once = False
    ticket = await jobs.submit()
    process = jobs.start_worker_process(crash_at=point)
    await jobs.parked(ticket)
    # As a finalizer leaves it that died after the upload.
    await jobs.put("renders/a.wav", b"a result that is not to count")
    await jobs.deployment.engine.cancel(ticket.id)
    await jobs.deployment.strike(process)
    await invariants.no_dead_state(jobs.deployment)
    await jobs.end_leases_of_the_dead()

    async with jobs.working_here():
        view = await jobs.ended_with_nothing_left_over(ticket)
    assert view.state is State.CANCELLED
    assert set(renderer.cancelled) == set(renderer.works) == {view.execution_id}
    await invariants.stale_writes_change_nothing(jobs.deployment, view)
