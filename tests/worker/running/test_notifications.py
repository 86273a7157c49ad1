"""Whoever watches a job is told of everything that happens to it, by notification.

``changed`` answers whether it was told; a look that is only due by time answers False.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from coatcheck import Job, JobNotFound, JobView, Service, State, Ticket
from coatcheck.core.watcher import Watch
from tests.deployment import Deployment, lane_seconds
from tests.waiting import LIMIT_SECONDS


async def told(watch: Watch) -> None:
    """Returns when a notification came. A look that is due by time is none: what came true before
    it may be told a moment later."""
    while not await watch.changed(LIMIT_SECONDS):
        pass


async def told_until(
    deployment: Deployment, watch: Watch, ticket: Ticket, condition: Callable[[JobView], object]
) -> JobView:
    """The job once ``condition`` is true of it, looked at only when a notification came."""
    async with asyncio.timeout(LIMIT_SECONDS):
        while True:
            await told(watch)
            view = await deployment.engine.get(ticket.id)
            if condition(view):
                return view


async def test_a_watcher_is_told_of_start_progress_lines_chunks_and_end(
    deployment: Deployment,
) -> None:
    lab = Service("lab")
    steps: asyncio.Queue[None] = asyncio.Queue()

    @lab.post("/steps")
    async def run(job: Job) -> str:
        await steps.get()
        await job.progress(0.5)
        await steps.get()
        await job.log("a line")
        await steps.get()
        await job.emit("a chunk")
        await steps.get()
        return "done"

    ticket = await deployment.engine.submit("lab.post__steps")
    with deployment.engine.watch(ticket.id) as watch:
        await deployment.start_worker(lab)
        await told_until(deployment, watch, ticket, lambda view: view.state is State.PROCESSING)
        steps.put_nowait(None)
        await told_until(deployment, watch, ticket, lambda view: view.progress == 0.5)
        for seen in (1, 2):
            steps.put_nowait(None)
            async with asyncio.timeout(LIMIT_SECONDS):
                while len(await deployment.engine.events(ticket.id)) < seen:
                    await told(watch)
        steps.put_nowait(None)
        await told_until(deployment, watch, ticket, lambda view: view.state is State.COMPLETED)


async def test_a_watcher_is_told_of_a_retry_and_of_its_turn(deployment: Deployment) -> None:
    lab = Service("lab")

    @lab.post("/broken", retries=1)
    async def run(job: Job) -> str:
        return job.retry("not yet", after=3600)

    ticket = await deployment.engine.submit("lab.post__broken", retries=1)
    with deployment.engine.watch(ticket.id) as watch:
        worker = await deployment.start_worker(lab)
        await told_until(deployment, watch, ticket, lambda view: view.state is State.RETRYING)
        await deployment.stop_worker(worker)
        await deployment.make_due(ticket)
        deployment.start_maintenance()
        await told_until(deployment, watch, ticket, lambda view: view.state is State.QUEUED)


async def test_a_watcher_is_told_that_cancellation_was_asked_for(deployment: Deployment) -> None:
    lab = Service("lab")
    gate = asyncio.Event()

    @lab.post("/stubborn")
    async def run() -> str:
        await gate.wait()
        return "done"

    await deployment.start_worker(lab)
    ticket = await deployment.engine.submit("lab.post__stubborn")
    await deployment.wait_for_state(ticket, State.PROCESSING)
    with deployment.engine.watch(ticket.id) as watch:
        cancelling = asyncio.create_task(deployment.engine.cancel(ticket.id))
        await told_until(
            deployment, watch, ticket, lambda view: view.state is State.CANCEL_REQUESTED
        )
        gate.set()
        await cancelling
        await told_until(deployment, watch, ticket, lambda view: view.terminal)


async def test_a_watcher_is_told_of_a_rescue(deployment: Deployment) -> None:
    lab = Service("lab")
    gate = asyncio.Event()

    @lab.post("/held")
    async def run() -> str:
        await gate.wait()
        return "done"

    worker = await deployment.start_worker(lab, lane_ack_seconds=lane_seconds(600))
    ticket = await deployment.engine.submit("lab.post__held")
    await deployment.wait_for_state(ticket, State.PROCESSING)
    with deployment.engine.watch(ticket.id) as watch:
        await deployment.sql.execute("DELETE FROM workers WHERE boot = $1", worker.boot)
        deployment.start_maintenance()
        await told_until(deployment, watch, ticket, lambda view: view.crashes == 1)
    gate.set()


@pytest.mark.parametrize("job_id", ["", "not an id"])
async def test_what_is_no_id_cannot_be_watched(deployment: Deployment, job_id: str) -> None:
    with pytest.raises(JobNotFound):
        deployment.engine.watch(job_id)
