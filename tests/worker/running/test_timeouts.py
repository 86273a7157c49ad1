"""A handler that runs for longer than it may is stopped, and its attempt counts as a failure."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from coatcheck import Job, Service, State
from coatcheck.worker import worker as agent
from coatcheck.worker.executors.thread import ABANDONED_THREADS_OF_ENDPOINT_MAX
from tests.deployment import Deployment, lane_seconds, lane_slots
from tests.waiting import eventually_async, until_true
from tests.worker.running.isolated_handlers import apart

TIMEOUT_SECONDS = 0.3


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Lets a thread go that nobody can stop."""
    event = threading.Event()
    yield event
    event.set()


async def test_an_async_handler_is_interrupted_at_its_timeout(deployment: Deployment) -> None:
    service = Service("lab")
    interrupted = asyncio.Event()

    @service.post("/hang")
    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            interrupted.set()

    await deployment.start_worker(service)
    ticket = await deployment.engine.submit("lab.post__hang", timeout=TIMEOUT_SECONDS, retries=0)
    view = await deployment.wait_for_end(ticket)

    assert interrupted.is_set()
    assert (view.state, view.error_code) == (State.FAILED, "max_retries_exhausted")
    assert view.error_message == "failed once; last: timed_out: ran for longer than 0.3 s"
    assert view.failures == 1


async def test_a_job_that_timed_out_is_tried_again_while_attempts_last(
    deployment: Deployment,
) -> None:
    service = Service("lab")

    @service.post("/hang")
    async def hang(job: Job) -> str:
        if job.attempt == 1:
            await asyncio.Event().wait()
        return "in time"

    deployment.start_maintenance()
    await deployment.start_worker(service)
    ticket = await deployment.engine.submit("lab.post__hang", timeout=TIMEOUT_SECONDS)
    waiting = await deployment.wait_for_state(ticket, State.RETRYING)
    await deployment.make_due(ticket)
    view = await deployment.wait_for_end(ticket)

    assert waiting.error_code == "timed_out"
    assert (view.state, view.failures, view.result) == (State.COMPLETED, 1, b'"in time"')


async def test_a_thread_is_abandoned_at_its_timeout_and_what_it_says_later_is_dropped(
    deployment: Deployment, gate: threading.Event
) -> None:
    service = Service("lab")
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()

    @service.post("/hang")
    def hang(job: Job) -> str:
        job.log("before")
        gate.wait()
        job.log("after")
        loop.call_soon_threadsafe(ended.set)
        return "too late"

    worker = await deployment.start_worker(service)
    ticket = await deployment.engine.submit("lab.post__hang", timeout=TIMEOUT_SECONDS, retries=0)
    view = await deployment.wait_for_end(ticket)
    gate.set()
    await ended.wait()
    await deployment.stop_worker(worker)

    assert view.error_message == "failed once; last: timed_out: ran for longer than 0.3 s"
    event, alert = await deployment.engine.events(ticket.id)
    assert b"before" in event.data
    assert alert.kind == "alert"
    assert await deployment.engine.get(ticket.id) == view


async def test_an_isolated_process_is_killed_at_its_timeout(
    deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid_file = tmp_path / "pid"
    await deployment.start_worker(apart, lane_ack_seconds=lane_seconds(3_600.0))
    ticket = await deployment.engine.submit(
        "apart.post__wait", {"pid_file": str(pid_file)}, timeout=600, retries=0
    )
    await until_true(pid_file.exists, "its process runs")
    # However long its process took to start: the worker's clock, and not ours, comes to its end.
    later = SimpleNamespace(monotonic=lambda: time.monotonic() + 600)
    monkeypatch.setattr(agent, "time", later)
    view = await deployment.wait_for_end(ticket)

    assert view.error_message == "failed once; last: timed_out: ran for longer than 600 s"
    assert not psutil.pid_exists(int(pid_file.read_text()))


async def test_what_a_job_said_before_its_timeout_can_be_read_after_it(
    deployment: Deployment,
) -> None:
    service = Service("lab")

    @service.post("/talk")
    async def talk(job: Job) -> None:
        await job.progress(0.5, "half")
        try:
            await asyncio.Event().wait()
        finally:
            job.log("interrupted")

    await deployment.start_worker(service)
    ticket = await deployment.engine.submit("lab.post__talk", timeout=TIMEOUT_SECONDS, retries=0)
    view = await deployment.wait_for_end(ticket)

    assert (view.progress, view.progress_note) == (0.5, "half")
    event, alert = await deployment.engine.events(ticket.id)
    assert b"interrupted" in event.data
    assert alert.kind == "alert"


async def test_a_handler_that_swallows_its_interruption_is_interrupted_again(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "STOP_AGAIN_SECONDS", 0.1)
    service = Service("lab")
    swallowed = 0

    @service.post("/deaf")
    async def deaf() -> None:
        nonlocal swallowed
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if swallowed == 3:
                    raise
                swallowed += 1

    await deployment.start_worker(service)
    ticket = await deployment.engine.submit("lab.post__deaf", timeout=TIMEOUT_SECONDS, retries=0)
    view = await deployment.wait_for_end(ticket)

    assert swallowed == 3
    assert view.failures == 1
    assert view.error_message is not None
    assert "timed_out" in view.error_message


async def test_the_next_job_of_a_slot_does_not_inherit_the_interruptions_of_the_last(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "STOP_AGAIN_SECONDS", 0.1)
    service = Service("lab")
    interruptions: list[int] = []

    @service.post("/deaf")
    async def deaf() -> str:
        for _ in range(2):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue
        return "returned all the same"

    @service.post("/group")
    async def group() -> None:
        task = asyncio.current_task()
        assert task is not None
        interruptions.append(task.cancelling())
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fail())

    async def fail() -> None:
        raise LookupError("in a task of a group")

    slots = dict.fromkeys(deployment.settings.lane_concurrency, 1)
    await deployment.start_worker(service, lane_concurrency=slots)
    deaf_job = await deployment.engine.submit("lab.post__deaf", timeout=TIMEOUT_SECONDS)
    group_job = await deployment.engine.submit("lab.post__group", retries=0)

    assert (await deployment.wait_for_end(deaf_job)).state is State.COMPLETED
    view = await deployment.wait_for_end(group_job)
    assert interruptions == [0]
    assert view.error_message == (
        "failed once; last: handler_error: LookupError: in a task of a group"
    )


async def test_timeouts_hold_while_the_database_does_not_answer(deployment: Deployment) -> None:
    service = Service("lab")
    started: asyncio.Queue[Job] = asyncio.Queue()
    interrupted: asyncio.Queue[str] = asyncio.Queue()

    @service.post("/hang")
    async def hang(job: Job) -> None:
        await started.put(job)
        try:
            await asyncio.Event().wait()
        finally:
            interrupted.put_nowait(job.id)

    await deployment.start_worker(service)
    ticket = await deployment.engine.submit("lab.post__hang", timeout=TIMEOUT_SECONDS, retries=0)
    job = await started.get()
    async with deployment.sql.transaction():
        # Whatever the worker wants to write about the job now waits for this transaction.
        await deployment.sql.execute("LOCK TABLE jobs IN SHARE MODE")
        await eventually_async(
            lambda: deployment.sql.fetchval(
                "SELECT count(*) FROM pg_locks WHERE relation = 'jobs'::regclass AND NOT granted"
            ),
            "the worker waits for the lock",
        )
        assert await interrupted.get() == job.id
    assert (await deployment.wait_for_end(ticket)).failures == 1


async def test_plain_functions_that_do_not_stop_keep_their_own_jobs_waiting_and_nobody_elses(
    deployment: Deployment, gate: threading.Event
) -> None:
    service = Service("lab")

    @service.post("/hang")
    def hang() -> str:
        gate.wait()
        return "in the end"

    @service.post("/work")
    def work() -> str:
        return "done"

    await deployment.start_worker(service)
    hanging = [
        await deployment.engine.submit("lab.post__hang", timeout=TIMEOUT_SECONDS, retries=0)
        for _ in range(ABANDONED_THREADS_OF_ENDPOINT_MAX)
    ]
    for ticket in hanging:
        await deployment.wait_for_end(ticket)
    await threads_are_held(deployment)
    waiting = await deployment.engine.submit("lab.post__hang", retries=0)
    other = await deployment.engine.submit("lab.post__work")
    assert (await deployment.wait_for_end(other)).result == b'"done"'

    async def explained() -> str | None:
        view = await deployment.engine.get(waiting.id)
        assert (view.state, view.attempts) == (State.QUEUED, 0)
        told = await deployment.engine.explainer.explain(view)
        (first, *_) = told.blockers or [None]
        return None if first is None or first.kind != "threads_held" else told.summary

    said = await eventually_async(explained, "it is said why the job waits")
    assert said.startswith("All threads of the workers for lab.post__hang are blocked by handlers")

    gate.set()
    ended = await deployment.wait_for_end(waiting)
    assert (ended.state, ended.result, ended.attempts) == (State.COMPLETED, b'"in the end"', 1)
    await threads_are_held(deployment, False)


async def test_a_job_that_finds_no_thread_is_given_back_once_and_not_claimed_again_at_once(
    deployment: Deployment, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The next job is claimed as the others are given up, and long before the threads are looked at
    # again: if it were not left out, it would be claimed and given back all that time.
    monkeypatch.setattr(agent, "WATCH_SECONDS", 1.0)
    service = Service("lab")

    @service.post("/hang")
    def hang() -> str:
        gate.wait()
        return "in the end"

    @service.post("/work")
    def work() -> str:
        return "done"

    threads = ABANDONED_THREADS_OF_ENDPOINT_MAX
    await deployment.start_worker(service, lane_concurrency=lane_slots(standard=threads))
    hung = [
        await deployment.engine.submit("lab.post__hang", timeout=TIMEOUT_SECONDS, retries=0)
        for _ in range(threads)
    ]
    waiting = await deployment.engine.submit("lab.post__hang", retries=0)
    await deployment.wait_for_ends(hung)
    await threads_are_held(deployment)
    other = await deployment.engine.submit("lab.post__work")
    assert (await deployment.wait_for_end(other)).state is State.COMPLETED
    view = await deployment.engine.get(waiting.id)
    assert view.state is State.QUEUED
    assert view.interruptions <= 1

    gate.set()
    ended = await deployment.wait_for_end(waiting)
    assert (ended.state, ended.result) == (State.COMPLETED, b'"in the end"')
    assert ended.interruptions == view.interruptions


async def threads_are_held(deployment: Deployment, held: bool = True) -> None:
    """Wait until a worker says that threads are held, or that none are any more."""
    query = "SELECT bool_or(threads_held <> '{}') FROM workers"

    async def look() -> bool:
        return bool(await deployment.sql.fetchval(query) == held)

    await eventually_async(look, f"a worker says that threads are {'' if held else 'not '}held")
