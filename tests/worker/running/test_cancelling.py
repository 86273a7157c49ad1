"""Cancellation: at once while a job waits, by its handler's leave or by force while it runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psutil
import pytest

from coatcheck import Job, JobAlreadyEnded, Service, State
from coatcheck.worker import worker as agent
from tests.deployment import Deployment, lane_seconds, lane_slots
from tests.waiting import eventually_async
from tests.worker.running.isolated_handlers import apart


@pytest.fixture
def little_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler that was asked to stop is interrupted soon."""
    monkeypatch.setattr(agent, "CANCEL_GRACE_SECONDS", 0.2)


async def test_a_queued_job_is_cancelled_at_once_and_never_runs(deployment: Deployment) -> None:
    service = Service("lab")
    ran = []

    @service.post("/run")
    async def run() -> None:
        ran.append(True)

    secret = {"secret": "a canary"}
    ticket = await deployment.engine.submit("lab.post__run", secret, keep_input=False)
    view = await deployment.engine.cancel(ticket.id)
    await deployment.start_worker(service)
    marker = await deployment.engine.submit("lab.post__run")
    await deployment.wait_for_end(marker)

    assert (view.state, view.error_code) == (State.CANCELLED, "cancelled")
    assert ran == [True]
    assert await deployment.engine.get(ticket.id) == view
    row = await deployment.sql.fetchrow("SELECT payload FROM jobs WHERE id = $1", ticket.uuid)
    assert row["payload"] is None


async def test_a_running_handler_sees_that_it_was_asked_and_stops_by_itself(
    deployment: Deployment,
) -> None:
    service = Service("lab")
    tidied = asyncio.Event()

    @service.post("/heed")
    async def heed(job: Job) -> None:
        await job.wait_cancelled()
        tidied.set()
        job.check_cancelled()

    await deployment.start_worker(service)
    ticket = await deployment.engine.submit("lab.post__heed")
    await deployment.wait_for_state(ticket, State.PROCESSING)
    asked = await deployment.engine.cancel(ticket.id)
    view = await deployment.wait_for_end(ticket)

    assert asked.state in (State.CANCEL_REQUESTED, State.CANCELLED)
    assert tidied.is_set()
    assert (view.state, view.error_code, view.failures) == (State.CANCELLED, "cancelled", 0)


async def test_a_handler_that_finishes_all_the_same_keeps_its_true_end(
    deployment: Deployment,
) -> None:
    service = Service("lab")

    @service.post("/finish")
    async def finish(job: Job) -> str:
        await job.wait_cancelled()
        return "done nevertheless"

    await deployment.start_worker(service)
    ticket = await deployment.engine.submit("lab.post__finish")
    await deployment.wait_for_state(ticket, State.PROCESSING)
    await deployment.engine.cancel(ticket.id)
    view = await deployment.wait_for_end(ticket)

    assert (view.state, view.result) == (State.COMPLETED, b'"done nevertheless"')
    with pytest.raises(JobAlreadyEnded):
        await deployment.engine.cancel(ticket.id)


async def test_a_plain_function_sees_that_it_was_asked(deployment: Deployment) -> None:
    service = Service("lab")

    @service.post("/heed")
    def heed(job: Job) -> None:
        asked = asyncio.run_coroutine_threadsafe(job.wait_cancelled(), loop)
        asked.result()
        job.check_cancelled()

    loop = asyncio.get_running_loop()
    await deployment.start_worker(service)
    ticket = await deployment.engine.submit("lab.post__heed")
    await deployment.wait_for_state(ticket, State.PROCESSING)
    await deployment.engine.cancel(ticket.id)

    assert (await deployment.wait_for_end(ticket)).state is State.CANCELLED


async def test_an_isolated_handler_sees_that_it_was_asked(
    deployment: Deployment, tmp_path: Path
) -> None:
    pid_file = tmp_path / "pid"
    await deployment.start_worker(apart)
    ticket = await deployment.engine.submit("apart.post__heed", {"pid_file": str(pid_file)})
    await _exists(pid_file)
    await deployment.engine.cancel(ticket.id)
    view = await deployment.wait_for_end(ticket)

    assert (view.state, view.failures) == (State.CANCELLED, 0)


@pytest.mark.parametrize("endpoint", ["apart.post__wait", "apart.post__refuse"])
async def test_an_isolated_process_that_does_not_stop_is_killed(
    deployment: Deployment, little_grace: None, tmp_path: Path, endpoint: str
) -> None:
    pid_file = tmp_path / "pid"
    await deployment.start_worker(apart)
    ticket = await deployment.engine.submit(endpoint, {"pid_file": str(pid_file)})
    await _exists(pid_file)
    child = psutil.Process(int(pid_file.read_text()))
    await deployment.engine.cancel(ticket.id)
    view = await deployment.wait_for_end(ticket)

    assert (view.state, view.failures, view.crashes) == (State.CANCELLED, 0, 0)
    assert not child.is_running()


async def test_an_async_handler_that_ignores_the_flag_is_interrupted(
    deployment: Deployment, little_grace: None
) -> None:
    service = Service("lab")
    interrupted = asyncio.Event()

    @service.post("/ignore")
    async def ignore() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            interrupted.set()

    await deployment.start_worker(service)
    ticket = await deployment.engine.submit("lab.post__ignore")
    await deployment.wait_for_state(ticket, State.PROCESSING)
    await deployment.engine.cancel(ticket.id)
    view = await deployment.wait_for_end(ticket)

    assert interrupted.is_set()
    assert (view.state, view.failures) == (State.CANCELLED, 0)


async def test_a_handler_that_would_be_tried_again_is_not_once_cancellation_was_asked_for(
    deployment: Deployment,
) -> None:
    service = Service("lab")

    @service.post("/fail")
    async def fail(job: Job) -> None:
        await job.wait_cancelled()
        raise LookupError("while it was asked to stop")

    await deployment.start_worker(service)
    ticket = await deployment.engine.submit("lab.post__fail", retries=5)
    await deployment.wait_for_state(ticket, State.PROCESSING)
    await deployment.engine.cancel(ticket.id)

    assert (await deployment.wait_for_end(ticket)).state is State.CANCELLED


async def test_a_job_that_is_claimed_but_has_not_begun_is_cancelled_without_being_run(
    deployment: Deployment,
) -> None:
    service = Service("lab")
    gate = asyncio.Event()
    ran: list[str] = []

    @service.post("/short")
    async def short() -> None:
        pass

    @service.post("/long")
    async def long(job: Job) -> None:
        ran.append(job.id)
        await gate.wait()

    worker = await deployment.start_worker(service, lane_concurrency=lane_slots(standard=1))
    await _run_short_jobs(deployment)
    first, second = [
        await deployment.engine.submit("lab.post__long"),
        await deployment.engine.submit("lab.post__long"),
    ]
    await eventually_async(
        lambda: _both_held(deployment), "the worker has claimed the second job, too"
    )
    await deployment.engine.cancel(second.id)
    view = await deployment.wait_for_end(second)
    gate.set()

    assert view.state is State.CANCELLED
    assert (await deployment.wait_for_end(first)).state is State.COMPLETED
    assert ran == [first.id]
    assert worker.rejected == 0


async def test_a_cancellation_that_was_never_announced_is_found_with_the_next_heartbeat(
    deployment: Deployment,
) -> None:
    service = Service("lab")

    @service.post("/heed")
    async def heed(job: Job) -> None:
        await job.wait_cancelled()
        job.check_cancelled()

    await deployment.start_worker(service, lane_ack_seconds=lane_seconds(3.0))
    ticket = await deployment.engine.submit("lab.post__heed")
    await deployment.wait_for_state(ticket, State.PROCESSING)
    await deployment.sql.execute(
        "UPDATE jobs SET state = 'cancel_requested' WHERE id = $1", ticket.uuid
    )

    assert (await deployment.wait_for_end(ticket)).state is State.CANCELLED


async def _run_short_jobs(deployment: Deployment) -> None:
    """Teach a worker that jobs are short, so that it claims ahead."""
    tickets = [await deployment.engine.submit("lab.post__short") for _ in range(20)]
    await deployment.wait_for_ends(tickets)


async def _both_held(deployment: Deployment) -> bool:
    held = await deployment.sql.fetchval("SELECT count(*) FROM jobs WHERE lease IS NOT NULL")
    return bool(held == 2)


async def _exists(path: Path) -> None:
    async def look() -> bool:
        return path.exists()

    await eventually_async(look, f"{path.name} is written")
