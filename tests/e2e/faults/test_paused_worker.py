"""SIGSTOP for longer than the lease, then SIGCONT: the worker finds that it has lost everything."""

from __future__ import annotations

import psutil

from coatcheck import JobView, State, Ticket
from tests.child_process import ChildProcess
from tests.deployment import Deployment
from tests.e2e.faults.roles import (
    executions,
    open_gate,
    payload,
    start_worker_process,
    wait_until_executed,
)

SHORT_LEASE = "urgent=2,standard=2"
TOO_LATE = "a result came too late: this worker no longer held the job"


async def test_the_process_of_an_isolated_job_is_killed_when_its_worker_wakes_up(
    deployment: Deployment,
) -> None:
    sleeper, ticket = await _paused_with(deployment, "lab.post__wait_apart")
    child = psutil.Process(await wait_until_executed(deployment, ticket))
    view = await _completed_elsewhere(deployment, ticket)
    assert child.is_running()
    sleeper.resume()
    assert await sleeper.terminate() == 0

    assert not child.is_running()
    assert TOO_LATE in sleeper.log
    assert sleeper.said("ended")[0]["rejected"] == 1
    assert await deployment.engine.get(ticket.id) == view


async def test_a_result_that_was_ready_when_the_worker_woke_up_is_rejected(
    deployment: Deployment,
) -> None:
    # The handler blocks the loop, so that it returns before the worker can look at its leases.
    sleeper, ticket = await _paused_with(deployment, "lab.post__block")
    view = await _completed_elsewhere(deployment, ticket)
    open_gate(deployment, "gate")
    sleeper.resume()
    assert await sleeper.terminate() == 0

    assert TOO_LATE in sleeper.log
    assert sleeper.said("ended")[0]["rejected"] == 1
    assert await deployment.engine.get(ticket.id) == view


async def test_a_worker_that_woke_up_works_on(deployment: Deployment) -> None:
    sleeper, ticket = await _paused_with(deployment, "lab.post__wait_first")
    deployment.start_maintenance()
    await deployment.wait_for_job(ticket, lambda view: view.crashes == 1, "the job is rescued")
    sleeper.resume()
    view = await deployment.wait_for_end(ticket)

    assert (view.state, view.failures) == (State.COMPLETED, 0)
    assert [pid for _, _, pid in executions(deployment)] == [sleeper.pid, sleeper.pid]


async def _paused_with(deployment: Deployment, endpoint: str) -> tuple[ChildProcess, Ticket]:
    """A paused worker that holds a job, whose first execution waits for the gate."""
    sleeper = await start_worker_process(deployment, lane_ack_seconds=SHORT_LEASE)
    ticket = await deployment.engine.submit(endpoint, payload(deployment, gate="gate"), retries=0)
    await wait_until_executed(deployment, ticket)
    sleeper.pause()
    return sleeper, ticket


async def _completed_elsewhere(deployment: Deployment, ticket: Ticket) -> JobView:
    deployment.start_maintenance()
    other = await start_worker_process(deployment)
    view = await deployment.wait_for_end(ticket)
    assert (view.state, view.crashes, view.failures) == (State.COMPLETED, 1, 0)
    assert executions(deployment)[-1][2] != executions(deployment)[0][2]
    assert other.said("ended") == []
    return view
