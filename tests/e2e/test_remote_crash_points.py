"""Kills who spawns, polls, finalizes and cancels what a remote does, at every point of the way.

The job ends once, the remote has one piece of work of it, and one file counts, or none. Databases,
remotes and whole workers go away in faults/test_remote_losses.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coatcheck import State
from tests.e2e.faults import history, invariants
from tests.e2e.faults.remote_lab import HERE, RemoteLaboratory, Studio
from tests.e2e.faults.victims import VICTIM
from tests.sealed_secrets import SECRET_KEY

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
async def studio() -> AsyncIterator[Studio]:
    async with Studio.running() as opened:
        yield opened


@pytest.fixture
async def laboratory(dsn: str, tmp_path: Path, studio: Studio) -> AsyncIterator[RemoteLaboratory]:
    async with RemoteLaboratory(dsn, tmp_path) as opened:
        opened.target = studio.definition()
        await history.keep(opened.sql)
        yield opened


@pytest.mark.parametrize("point", sorted(SPAWN_POINTS))
async def test_work_is_found_again_after_a_crash_at(
    laboratory: RemoteLaboratory, studio: Studio, point: str
) -> None:
    ticket = await laboratory.hand_in(retries=0)
    process = laboratory.start_working_remotely(crash_at=point)
    await laboratory.strike(process)
    if VICTIM.is_exact:
        assert studio.spawns_asked_for == SPAWN_POINTS[point]
    await invariants.no_dead_state(laboratory)
    await laboratory.forget_the_dead()

    async with laboratory.working_here():
        view = await laboratory.ended_with_nothing_left_over(ticket)
    assert (view.state, view.failures) == (State.COMPLETED, 0)
    assert VICTIM.allows(view.crashes, 1)
    assert list(studio.works) == [view.execution_id]
    await invariants.stale_writes_change_nothing(laboratory, view)


@pytest.mark.parametrize("point", sorted(RESULT_POINTS))
async def test_a_result_counts_once_after_a_crash_at(
    laboratory: RemoteLaboratory, studio: Studio, point: str
) -> None:
    ticket = await laboratory.hand_in(retries=0)
    process = laboratory.start_working_remotely(crash_at=point)
    await laboratory.strike(process)
    await invariants.no_dead_state(laboratory)
    await laboratory.forget_the_dead()

    async with laboratory.working_here():
        view = await laboratory.ended_with_nothing_left_over(ticket)
    assert (view.state, view.failures) == (State.COMPLETED, 0)
    assert VICTIM.allows(view.crashes, 0)
    assert list(studio.works) == [view.execution_id]
    assert VICTIM.allows(studio.spawns_asked_for, 1)
    await invariants.stale_writes_change_nothing(laboratory, view)


async def test_a_result_counts_once_though_a_server_dies_that_stored_it(
    laboratory: RemoteLaboratory, studio: Studio
) -> None:
    ticket = await laboratory.hand_in(retries=0)
    async with laboratory.working_here(polling=False):
        await laboratory.parked(ticket)
    process = laboratory.start(
        "look", ticket.id, crash_at="remote.kept", egress_allow=HERE, secret_keys=SECRET_KEY
    )
    await laboratory.strike(process)
    if VICTIM.is_exact:
        assert await laboratory.state(ticket) is State.FINALIZING
        assert len(await laboratory.stored()) == 1
    await laboratory.forget_the_dead()

    async with laboratory.working_here():
        view = await laboratory.ended_with_nothing_left_over(ticket)
    assert (view.state, view.crashes, view.failures) == (State.COMPLETED, 0, 0)
    assert list(studio.works) == [view.execution_id]


@pytest.mark.parametrize("point", sorted(END_POINTS))
async def test_a_cancelled_job_leaves_nothing_after_a_crash_at(
    laboratory: RemoteLaboratory, studio: Studio, point: str
) -> None:
    studio.at_once = False
    ticket = await laboratory.hand_in()
    process = laboratory.start_working_remotely(crash_at=point)
    await laboratory.parked(ticket)
    # As a finalizer leaves it that died after the upload.
    await laboratory.put("renders/a.wav", b"a result that is not to count")
    await laboratory.engine.cancel(ticket.id)
    await laboratory.strike(process)
    await invariants.no_dead_state(laboratory)
    await laboratory.forget_the_dead()

    async with laboratory.working_here():
        view = await laboratory.ended_with_nothing_left_over(ticket)
    assert view.state is State.CANCELLED
    assert set(studio.cancelled) == set(studio.works) == {view.execution_id}
    await invariants.stale_writes_change_nothing(laboratory, view)
