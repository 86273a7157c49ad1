"""SIGSTOP for longer than the lease, then SIGCONT: the worker finds that it has lost everything."""

from __future__ import annotations

import psutil

from coatcheck import JobView, State, Ticket
from tests.child_process import ChildProcess
from tests.e2e.faults.laboratory import Laboratory

SHORT_LEASE = "urgent=2,standard=2"
TOO_LATE = "a result came too late: this worker no longer held the job"


async def test_the_process_of_an_isolated_job_is_killed_when_its_worker_wakes_up(
    laboratory: Laboratory,
) -> None:
    sleeper, ticket = await _paused_with(laboratory, "lab.post__wait_apart")
    child = psutil.Process(await laboratory.until_executed(ticket))
    view = await _completed_elsewhere(laboratory, ticket)
    assert child.is_running()
    sleeper.resume()
    assert await sleeper.terminate() == 0

    assert not child.is_running()
    assert TOO_LATE in sleeper.log
    assert sleeper.said("ended")[0]["rejected"] == 1
    assert await laboratory.engine.get(ticket.id) == view


async def test_a_result_that_was_ready_when_the_worker_woke_up_is_rejected(
    laboratory: Laboratory,
) -> None:
    # The handler blocks the loop, so that it returns before the worker can look at its leases.
    sleeper, ticket = await _paused_with(laboratory, "lab.post__block")
    view = await _completed_elsewhere(laboratory, ticket)
    laboratory.open_gate("gate")
    sleeper.resume()
    assert await sleeper.terminate() == 0

    assert TOO_LATE in sleeper.log
    assert sleeper.said("ended")[0]["rejected"] == 1
    assert await laboratory.engine.get(ticket.id) == view


async def test_a_worker_that_woke_up_works_on(laboratory: Laboratory) -> None:
    sleeper, ticket = await _paused_with(laboratory, "lab.post__wait_first")
    laboratory.start_upkeep()
    await laboratory.until(ticket, lambda view: view.crashes == 1, "the job is rescued")
    sleeper.resume()
    view = await laboratory.end_of(ticket)

    assert (view.state, view.failures) == (State.COMPLETED, 0)
    assert [pid for _, _, pid in laboratory.executions()] == [sleeper.pid, sleeper.pid]


async def _paused_with(laboratory: Laboratory, endpoint: str) -> tuple[ChildProcess, Ticket]:
    """A paused worker that holds a job, whose first execution waits for the gate."""
    sleeper = await laboratory.start_working(lane_ack_seconds=SHORT_LEASE)
    ticket = await laboratory.engine.submit(endpoint, laboratory.payload(gate="gate"), retries=0)
    await laboratory.until_executed(ticket)
    sleeper.pause()
    return sleeper, ticket


async def _completed_elsewhere(laboratory: Laboratory, ticket: Ticket) -> JobView:
    laboratory.start_upkeep()
    other = await laboratory.start_working()
    view = await laboratory.end_of(ticket)
    assert (view.state, view.crashes, view.failures) == (State.COMPLETED, 1, 0)
    assert laboratory.executions()[-1][2] != laboratory.executions()[0][2]
    assert other.said("ended") == []
    return view
