"""SIGTERM: a worker process drains and ends, and nothing it held spends an attempt."""

from __future__ import annotations

import psutil

from coatcheck import State
from tests.child_process import ChildProcess
from tests.e2e.faults.laboratory import Laboratory
from tests.waiting import eventually_async


async def test_a_job_that_ends_within_the_grace_completes_and_no_other_is_claimed(
    laboratory: Laboratory,
) -> None:
    worker = await laboratory.start_working(drain_seconds="60")
    ticket = await laboratory.engine.submit("lab.post__wait", laboratory.payload(gate="gate"))
    await laboratory.until_executed(ticket)
    worker.interrupt()
    await _drains(worker)
    later = await laboratory.engine.submit("lab.post__note", laboratory.payload())
    laboratory.open_gate("gate")

    assert await worker.exit() == 0
    view = await laboratory.engine.get(ticket.id)
    assert (view.state, view.interruptions, view.crashes) == (State.COMPLETED, 0, 0)
    assert await laboratory.state(later) is State.QUEUED
    assert await laboratory.sql.fetchval("SELECT count(*) FROM workers") == 0


async def test_long_jobs_are_released_and_their_processes_ended(laboratory: Laboratory) -> None:
    worker = await laboratory.start_working()
    inline, apart = [
        await laboratory.engine.submit(endpoint, laboratory.payload(gate="never"), retries=0)
        for endpoint in ("lab.post__wait", "lab.post__wait_apart")
    ]
    await laboratory.until_executed(inline)
    child = psutil.Process(await laboratory.until_executed(apart))

    assert await worker.terminate() == 0
    assert not child.is_running()
    for ticket in (inline, apart):
        view = await laboratory.engine.get(ticket.id)
        assert (view.state, view.interruptions) == (State.QUEUED, 1)
        assert (view.failures, view.crashes) == (0, 0)
    assert await laboratory.sql.fetchval("SELECT count(*) FROM workers") == 0
    assert list((laboratory.folder / "temp").iterdir()) == []


async def test_an_idle_worker_ends_at_once(laboratory: Laboratory) -> None:
    worker = await laboratory.start_working(drain_seconds="3600")

    assert await worker.terminate() == 0
    assert worker.said("ended") == [{"event": "ended", "rejected": 0}]


async def _drains(worker: ChildProcess) -> None:
    async def look() -> bool:
        return '"draining"' in worker.log

    await eventually_async(look, "the worker says that it drains")
