"""Runs plain functions in threads.

A thread cannot be stopped from outside. When the task that awaits ``run`` is cancelled (a timeout,
a forced cancellation, a lost lease), the handler's ``job.cancel_requested`` becomes true and the
thread is abandoned: it runs until the handler returns, its reports and its value are dropped, and
the next job gets another thread. A handler that may hang forever belongs in a process
(``isolated=True``), which can be killed.

Abandoned threads are limited, per endpoint and in total. An endpoint beyond its limit is full: the
worker claims no more of its jobs until handlers have returned, and releases those that it has
claimed (see ``Worker``). The limit per endpoint keeps other endpoints running.

The threads are daemons, unlike those of ``concurrent.futures``: an abandoned one must neither take
the next job's slot nor keep the worker from exiting.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Final

from coatcheck.domain.bounds import CountedBound
from coatcheck.domain.limits import REPORTS_UNDERWAY_BYTES
from coatcheck.domain.states import Interrupted, Outcome
from coatcheck.job import DONE, Attachment, Job, Report, Reporter, bytes_held
from coatcheck.service import Endpoint
from coatcheck.worker.executors.outcomes import log_error, outcome_of_error, outcome_of_value

REPORTS_UNDERWAY_MAX: Final = 64
"""How many reports a thread may be ahead of the event loop before it has to wait. Large ones count
by their bytes."""

ABANDONED_THREADS_OF_ENDPOINT_MAX: Final = 16
"""How many threads the abandoned handlers of one endpoint may occupy."""

ABANDONED_THREADS_MAX: Final = 64
"""The same for all endpoints of a worker together."""
ABANDONED_THREADS: Final = CountedBound(
    "threads",
    of="threads of a worker whose plain function did not stop at its timeout or cancellation",
    over="worker",
    value=f"{ABANDONED_THREADS_OF_ENDPOINT_MAX} of an endpoint, {ABANDONED_THREADS_MAX} of a "
    "worker",
    response="its jobs wait and use no attempt; `explain` says `threads_held`",
)


class ThreadExecutor:
    """Runs each job in a thread, and keeps up to ``threads`` idle ones for the next.

    The caller limits how many run at once: ``threads`` is its limit. There are never more threads
    than that plus ``ABANDONED_THREADS_MAX``.
    """

    def __init__(self, threads: int) -> None:
        self._pool = _DaemonThreads(threads)
        self._guard = threading.Lock()
        self._abandoned: Counter[str] = Counter()

    async def run(self, endpoint: Endpoint, job: Job, payload: bytes) -> Outcome:
        """Run the handler once. Cancelling the awaiting task abandons the thread.

        Returns ``Interrupted`` if too many threads are abandoned: the job is released and spends no
        attempt.
        """
        if self.held_against(endpoint.name):
            return Interrupted()
        bridge = _Bridge(job.reporter)
        job.report_through(bridge)
        call = _ThreadCall(endpoint, job, payload, bridge)
        try:
            self._pool.start(contextvars.copy_context(), lambda: self._run(call))
            return await bridge.outcome
        except asyncio.CancelledError:
            job.mark_cancel_requested()
            self._abandon(call)
            raise
        finally:
            bridge.close()

    @property
    def abandoned(self) -> int:
        """How many threads run abandoned handlers."""
        with self._guard:
            return self._abandoned.total()

    def held_against(self, endpoint: str) -> int:
        """How many abandoned threads prevent this endpoint's jobs from running; 0 if they may."""
        with self._guard:
            if self._abandoned.total() >= ABANDONED_THREADS_MAX:
                return self._abandoned.total()
            own = self._abandoned[endpoint]
            return own if own >= ABANDONED_THREADS_OF_ENDPOINT_MAX else 0

    def _run(self, call: _ThreadCall) -> None:
        try:
            call.run()
        finally:
            with self._guard:
                call.is_over = True
                if call.is_abandoned:
                    self._abandoned[call.endpoint.name] -= 1

    def _abandon(self, call: _ThreadCall) -> None:
        with self._guard:
            if not call.is_over:
                call.is_abandoned = True
                self._abandoned[call.endpoint.name] += 1

    def close(self) -> None:
        """Release the idle threads. Threads that still run a handler end with the process."""
        self._pool.close()


class _ThreadCall:
    """One call of a handler in a thread."""

    def __init__(self, endpoint: Endpoint, job: Job, payload: bytes, bridge: _Bridge) -> None:
        self.endpoint = endpoint
        self._job = job
        self._payload = payload
        self._bridge = bridge
        self.is_over = False
        self.is_abandoned = False

    def run(self) -> None:
        self._bridge.settle(_outcome(self.endpoint, self._job, self._payload))


def _outcome(endpoint: Endpoint, job: Job, payload: bytes) -> Outcome:
    try:
        arguments = endpoint.decode(payload)
        if endpoint.job_parameter is not None:
            arguments[endpoint.job_parameter] = job
        value = endpoint.function(**arguments)
        return outcome_of_value(value)
    except BaseException as error:  # noqa: BLE001 - whatever a thread raises is its job's outcome
        log_error(job, error)
        return outcome_of_error(error)


class _Bridge:
    """Carries reports and the outcome from a handler's thread to the event loop.

    Created on the loop. Closing it abandons the thread: nothing crosses any more, and nothing in
    the thread waits.
    """

    def __init__(self, reporter: Reporter) -> None:
        self._loop = asyncio.get_running_loop()
        self._reporter = reporter
        self._guard = threading.Lock()
        self._closed = False
        self._underway: deque[tuple[Future[None], int]] = deque()
        self._underway_bytes = 0
        self.outcome: asyncio.Future[Outcome] = self._loop.create_future()

    # In the thread

    def report(self, report: Report) -> Awaitable[None]:
        """Return when there is room for more; for an attachment, when it has been read.

        Raises what storing this or an earlier report raised.
        """
        taken: Future[None] = Future()
        if self._cross(self._forward, report, taken, underway=(taken, bytes_held(report))):
            self._wait(0 if isinstance(report, Attachment) else REPORTS_UNDERWAY_MAX)
        return DONE

    def settle(self, outcome: Outcome) -> None:
        self._cross(_settle, self.outcome, outcome)

    def _cross(
        self,
        callback: Callable[..., None],
        *args: object,
        underway: tuple[Future[None], int] | None = None,
    ) -> bool:
        # Locked, so that the loop cannot be closed between the check and the call.
        with self._guard:
            if self._closed:
                return False
            if underway is not None:
                self._underway.append(underway)
                self._underway_bytes += underway[1]
            self._loop.call_soon_threadsafe(callback, *args)
            return True

    def _wait(self, underway_max: int) -> None:
        while True:
            with self._guard:
                if not self._underway:
                    return
                oldest, size = self._underway[0]
                is_ahead = (
                    len(self._underway) > underway_max
                    or self._underway_bytes > REPORTS_UNDERWAY_BYTES
                )
                if not is_ahead and not oldest.done():
                    return
            try:
                oldest.result()
            finally:
                # Only now: `close` must find it in order to end this wait.
                with self._guard:
                    if self._underway and self._underway[0][0] is oldest:
                        self._underway.popleft()
                        self._underway_bytes -= size

    # On the loop

    def _forward(self, report: Report, taken: Future[None]) -> None:
        if self._closed:
            return
        try:
            awaitable = self._reporter.report(report)
        except Exception as error:  # noqa: BLE001 - it belongs to the thread that reported
            taken.set_exception(error)
            return
        task = asyncio.ensure_future(_awaited(awaitable))
        task.add_done_callback(lambda done: _pass_on(done, taken))

    def close(self) -> None:
        with self._guard:
            self._closed = True
            for taken, _ in self._underway:
                if not taken.done():
                    taken.set_result(None)
            self._underway.clear()
            self._underway_bytes = 0


def _settle(ended: asyncio.Future[Outcome], outcome: Outcome) -> None:
    if not ended.done():
        ended.set_result(outcome)


async def _awaited(awaitable: Awaitable[None]) -> None:
    await awaitable


def _pass_on(done: asyncio.Future[None], taken: Future[None]) -> None:
    if taken.done():
        if not done.cancelled():
            done.exception()  # retrieved, so that asyncio does not report it as lost
        return
    if done.cancelled():
        taken.set_exception(RuntimeError("the worker no longer accepts reports"))
    elif (error := done.exception()) is not None:
        taken.set_exception(error)
    else:
        taken.set_result(None)


_Work = tuple[contextvars.Context, Callable[[], None]]


class _DaemonThreads:
    """Starts a thread for each piece of work that finds no idle thread."""

    def __init__(self, idle_max: int) -> None:
        self._idle_max = idle_max
        self._idle = 0
        self._started = 0
        self._guard = threading.Lock()
        self._queue: SimpleQueue[_Work | None] = SimpleQueue()

    def start(self, context: contextvars.Context, work: Callable[[], None]) -> None:
        with self._guard:
            if self._idle > 0:
                # Reserved: no more items are queued than threads wait for them.
                self._idle -= 1
                self._queue.put((context, work))
                return
            self._started += 1
            name = f"coatcheck-handler-{self._started}"
        threading.Thread(
            target=self._serve, args=((context, work),), name=name, daemon=True
        ).start()

    def _serve(self, first: _Work) -> None:
        item: _Work | None = first
        while item is not None:
            context, work = item
            context.run(work)
            # Do not keep the last job's payload alive while idle.
            del item, context, work
            with self._guard:
                if self._idle >= self._idle_max:
                    return
                self._idle += 1
            item = self._queue.get()

    def close(self) -> None:
        with self._guard:
            self._idle_max = 0
            idle, self._idle = self._idle, 0
        for _ in range(idle):
            self._queue.put(None)
