"""Plain functions in threads: what crosses to the loop, and what becomes of an abandoned thread."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import threading
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import pytest

from coatcheck.domain.states import Cancelled, Completed, Failed, Interrupted, Retryable
from coatcheck.job import Attachment, Job, LogLine, ProgressReport
from coatcheck.service import Service
from coatcheck.worker.executors import thread
from coatcheck.worker.executors.thread import (
    ABANDONED_THREADS_OF_ENDPOINT_MAX,
    REPORTS_UNDERWAY_MAX,
    ThreadExecutor,
)
from tests.waiting import eventually
from tests.worker.attempts import BlockedRecorder, FailingRecorder, Recorder, new_job

service = Service("test")
released = threading.Event()
seen: SimpleQueue[Any] = SimpleQueue()
request = contextvars.ContextVar("request", default="none")


@service.post("/echo")
def echo(content: str) -> dict[str, Any]:
    return {"content": content, "main": threading.current_thread() is threading.main_thread()}


@service.post("/context")
def context() -> str:
    return request.get()


@service.post("/name")
def name() -> str:
    return threading.current_thread().name


@service.post("/report")
def report(job: Job, lines: int) -> None:
    for number in range(lines):
        job.log(str(number))
    job.attach("file", b"data")
    job.progress(1)


@service.post("/flood")
def flood(job: Job) -> None:
    for number in range(REPORTS_UNDERWAY_MAX + 2):
        job.log(str(number))
        seen.put(number)


@service.post("/attach")
def attach(job: Job) -> None:
    job.attach("file", b"data")


@service.post("/block")
def block(job: Job) -> str:
    job.progress(0)
    released.wait()
    job.log("too late")
    seen.put(job.cancel_requested)
    return "too late"


@service.post("/stop")
def stop(job: Job) -> None:
    job.progress(0)
    while not job.cancel_requested:
        released.wait(0.001)
    job.check_cancelled()


@service.post("/exit")
def leave() -> None:
    sys.exit(3)


@service.post("/stop-iteration")
def stop_iteration() -> None:
    next(iter(()))


@pytest.fixture
def executor() -> Iterator[ThreadExecutor]:
    released.clear()
    executor = ThreadExecutor(4)
    yield executor
    released.set()
    executor.close()


async def run(
    executor: ThreadExecutor, key: str, payload: bytes = b"{}", recorder: Recorder | None = None
) -> Any:
    endpoint = service.endpoints[f"post__{key}"]
    return await executor.run(endpoint, new_job(endpoint, recorder or Recorder()), payload)


async def test_a_plain_function_runs_outside_of_the_loops_thread(executor: ThreadExecutor) -> None:
    assert await run(executor, "echo", b'{"content":"a"}') == Completed(
        b'{"content":"a","main":false}'
    )


async def test_errors_have_the_same_outcomes_as_elsewhere(executor: ThreadExecutor) -> None:
    assert await run(executor, "echo") == Failed("invalid_input", "content: missing")
    assert await run(executor, "exit") == Retryable("handler_error", "SystemExit: 3")
    assert await run(executor, "stop_iteration") == Retryable("handler_error", "StopIteration: ")


async def test_a_handler_sees_the_context_of_its_attempt(executor: ThreadExecutor) -> None:
    request.set("this one")
    assert await run(executor, "context") == Completed(b'"this one"')


async def test_all_reports_have_arrived_in_order_when_the_handler_has_returned(
    executor: ThreadExecutor,
) -> None:
    recorder = Recorder()
    lines = 3 * REPORTS_UNDERWAY_MAX
    await run(executor, "report", b'{"lines":%d}' % lines, recorder)
    *logged, attached, progress = recorder.reports
    assert logged == [LogLine(str(number)) for number in range(lines)]
    assert isinstance(attached, Attachment)
    assert progress == ProgressReport(1.0)


async def test_a_handler_that_reports_faster_than_can_be_stored_has_to_wait(
    executor: ThreadExecutor,
) -> None:
    recorder = BlockedRecorder()
    task = asyncio.create_task(run(executor, "flood", recorder=recorder))
    await recorder.until(REPORTS_UNDERWAY_MAX + 1)
    # The report that found no room was handed over, and its call has not returned.
    numbers = [await asyncio.to_thread(seen.get) for _ in range(REPORTS_UNDERWAY_MAX)]
    assert numbers == list(range(REPORTS_UNDERWAY_MAX))
    assert seen.empty()
    assert len(recorder.reports) == REPORTS_UNDERWAY_MAX + 1
    recorder.room.set()
    assert await task == Completed(b"null")
    assert [seen.get(), seen.get()] == [REPORTS_UNDERWAY_MAX, REPORTS_UNDERWAY_MAX + 1]


async def test_a_failure_to_store_an_attachment_is_raised_in_the_handler(
    executor: ThreadExecutor,
) -> None:
    assert await run(executor, "attach", recorder=FailingRecorder()) == Retryable(
        "handler_error", "OSError: the disk is full"
    )


async def test_a_handler_that_was_asked_to_stop_can(executor: ThreadExecutor) -> None:
    endpoint = service.endpoints["post__stop"]
    recorder = Recorder()
    job = new_job(endpoint, recorder)
    task = asyncio.create_task(executor.run(endpoint, job, b"{}"))
    await recorder.first(ProgressReport)
    job.mark_cancel_requested()
    assert await task == Cancelled()


async def test_an_abandoned_thread_is_told_so_and_what_it_reports_is_dropped(
    executor: ThreadExecutor,
) -> None:
    recorder = Recorder()
    task = asyncio.create_task(run(executor, "block", recorder=recorder))
    await recorder.first(ProgressReport)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    released.set()
    assert await asyncio.to_thread(seen.get) is True
    assert recorder.reports == [ProgressReport(0.0)]


async def abandoned(executor: ThreadExecutor, key: str, times: int) -> None:
    """Leave so many threads behind, each in a handler that does not return."""
    for _ in range(times):
        recorder = Recorder()
        task = asyncio.create_task(run(executor, key, recorder=recorder))
        await recorder.first(ProgressReport)
        task.cancel()
        await asyncio.wait([task])


async def test_an_endpoint_with_too_many_abandoned_threads_gets_no_more_until_some_return(
    executor: ThreadExecutor,
) -> None:
    await abandoned(executor, "block", ABANDONED_THREADS_OF_ENDPOINT_MAX - 1)
    assert executor.held_against("test.post__block") == 0
    await abandoned(executor, "block", 1)
    assert executor.held_against("test.post__block") == ABANDONED_THREADS_OF_ENDPOINT_MAX
    assert await run(executor, "block") == Interrupted()
    assert executor.abandoned == ABANDONED_THREADS_OF_ENDPOINT_MAX
    # Others go on.
    assert executor.held_against("test.post__echo") == 0
    assert isinstance(await run(executor, "context"), Completed)
    released.set()
    for _ in range(ABANDONED_THREADS_OF_ENDPOINT_MAX):
        await asyncio.to_thread(seen.get)
    await asyncio.to_thread(eventually, lambda: executor.abandoned == 0, "all have returned")
    assert await run(executor, "block") == Completed(b'"too late"')
    seen.get()


async def test_a_worker_with_too_many_abandoned_threads_starts_no_plain_function(
    executor: ThreadExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread, "ABANDONED_THREADS_MAX", 3)
    await abandoned(executor, "block", 3)
    assert executor.held_against("test.post__echo") == 3
    assert await run(executor, "echo", b'{"content":"a"}') == Interrupted()
    released.set()
    for _ in range(3):
        await asyncio.to_thread(seen.get)
    await asyncio.to_thread(eventually, lambda: executor.abandoned == 0, "all have returned")
    assert isinstance(await run(executor, "context"), Completed)


async def test_a_thread_that_ended_before_it_was_given_up_is_not_counted(
    executor: ThreadExecutor,
) -> None:
    await run(executor, "context")
    assert executor.abandoned == 0


def test_an_abandoned_thread_may_end_after_the_loop_has(executor: ThreadExecutor) -> None:
    """An exception in the thread would fail the test: there is no loop left to tell anything to."""

    async def abandon() -> None:
        recorder = Recorder()
        task = asyncio.create_task(run(executor, "block", recorder=recorder))
        await recorder.first(ProgressReport)
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(abandon())
    released.set()
    assert seen.get() is True
    executor.close()
    eventually(lambda: not handler_threads(), "the thread has ended")


async def test_a_thread_that_waits_for_room_is_let_go_when_it_is_abandoned(
    executor: ThreadExecutor,
) -> None:
    recorder = BlockedRecorder()
    task = asyncio.create_task(run(executor, "flood", recorder=recorder))
    await recorder.until(REPORTS_UNDERWAY_MAX + 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    numbers = [await asyncio.to_thread(seen.get) for _ in range(REPORTS_UNDERWAY_MAX + 2)]
    assert numbers == list(range(REPORTS_UNDERWAY_MAX + 2))


async def test_abandoned_threads_take_no_place_from_the_next_jobs() -> None:
    released.clear()
    executor = ThreadExecutor(1)
    recorders = [Recorder() for _ in range(3)]
    stuck = [asyncio.create_task(run(executor, "block", recorder=r)) for r in recorders]
    for recorder in recorders:
        await recorder.first(ProgressReport)
    for task in stuck:
        task.cancel()
    await asyncio.wait(stuck)
    assert await run(executor, "context") == Completed(b'"none"')
    released.set()
    for _ in stuck:
        await asyncio.to_thread(seen.get)
    executor.close()


async def test_threads_are_used_again(executor: ThreadExecutor) -> None:
    names = [await run(executor, "name") for _ in range(20)]
    # A thread hands its outcome in a moment before it is idle again: now and then one is too late.
    assert len({str(name) for name in names}) < len(names)


async def test_no_more_idle_threads_are_kept_than_asked_for() -> None:
    released.clear()
    executor = ThreadExecutor(2)
    recorders = [Recorder() for _ in range(4)]
    tasks = [asyncio.create_task(run(executor, "block", recorder=r)) for r in recorders]
    for recorder in recorders:
        await recorder.first(ProgressReport)
    threads = handler_threads()
    released.set()
    await asyncio.gather(*tasks)
    for _ in tasks:
        seen.get()
    eventually(lambda: sum(t.is_alive() for t in threads) <= 2, "two threads have ended")
    executor.close()
    eventually(lambda: not any(t.is_alive() for t in threads), "all threads have ended")


def handler_threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("coatcheck-handler")]


STUCK_WORKER = """
import asyncio, threading
from coatcheck.job import DONE, Job
from coatcheck.domain.ids import new_id
from coatcheck.domain.lanes import Lane
from coatcheck.service import Service
from coatcheck.worker.executors.thread import ThreadExecutor

service = Service("test")
started = asyncio.Event()

@service.post("/stuck")
def stuck(job: Job) -> None:
    job.progress(0)
    threading.Event().wait()

class Reporter:
    def report(self, report):
        started.set()
        return DONE

async def main():
    endpoint = service.endpoints["post__stuck"]
    job = Job(new_id(), "acme", endpoint.name, Lane.BULK, 1, 2, None, Reporter())
    task = asyncio.create_task(ThreadExecutor(1).run(endpoint, job, b"{}"))
    await started.wait()
    task.cancel()
    await asyncio.wait([task])

asyncio.run(main())
print("left the loop")
"""


def test_an_abandoned_thread_does_not_keep_the_worker_from_exiting() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", STUCK_WORKER],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "left the loop\n", "")
