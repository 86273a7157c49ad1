"""SIGTERM: a worker process drains and ends, and nothing it held spends an attempt."""

from __future__ import annotations

import psutil

from coatcheck import State
from tests.child_process import ChildProcess
from tests.deployment import Deployment
from tests.e2e.faults.roles import open_gate, payload, start_worker_process, wait_until_executed
from tests.waiting import eventually_async


async def test_a_job_that_ends_within_the_grace_completes_and_no_other_is_claimed(
    deployment: Deployment,
) -> None:
    worker = await start_worker_process(deployment, drain_seconds="60")
    ticket = await deployment.engine.submit("lab.post__wait", payload(deployment, gate="gate"))
    await wait_until_executed(deployment, ticket)
    worker.interrupt()
    await _drains(worker)
    later = await deployment.engine.submit("lab.post__note", payload(deployment))
    open_gate(deployment, "gate")

    assert await worker.exit() == 0
    view = await deployment.engine.get(ticket.id)
    assert (view.state, view.interruptions, view.crashes) == (State.COMPLETED, 0, 0)
    assert await deployment.state(later) is State.QUEUED
    assert await deployment.sql.fetchval("SELECT count(*) FROM workers") == 0


async def test_long_jobs_are_released_and_their_processes_ended(deployment: Deployment) -> None:
    worker = await start_worker_process(deployment)
    inline, apart = [
        await deployment.engine.submit(endpoint, payload(deployment, gate="never"), retries=0)
        for endpoint in ("lab.post__wait", "lab.post__wait_apart")
    ]
    await wait_until_executed(deployment, inline)
    child = psutil.Process(await wait_until_executed(deployment, apart))

    assert await worker.terminate() == 0
    assert not child.is_running()
    for ticket in (inline, apart):
        view = await deployment.engine.get(ticket.id)
        assert (view.state, view.interruptions) == (State.QUEUED, 1)
        assert (view.failures, view.crashes) == (0, 0)
    assert await deployment.sql.fetchval("SELECT count(*) FROM workers") == 0
    assert list((deployment.folder / "temp").iterdir()) == []


async def test_an_idle_worker_ends_at_once(deployment: Deployment) -> None:
    worker = await start_worker_process(deployment, drain_seconds="3600")

    assert await worker.terminate() == 0
    assert worker.said("ended") == [{"event": "ended", "rejected": 0}]


async def _drains(worker: ChildProcess) -> None:
    async def look() -> bool:
        return '"draining"' in worker.log

    await eventually_async(look, "the worker says that it drains")
