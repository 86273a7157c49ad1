"""Chooses where each handler runs: on the event loop, in a thread, or in its own process."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, assert_never

from coatcheck.domain.states import Outcome
from coatcheck.job import Job
from coatcheck.service import Endpoint
from coatcheck.settings import Settings
from coatcheck.worker.executors.isolated import IsolatedExecutor
from coatcheck.worker.executors.outcomes import log_error, outcome_of_error, outcome_of_value
from coatcheck.worker.executors.thread import ThreadExecutor
from coatcheck.worker.temp_dirs import TempRoot


async def run(endpoint: Endpoint, job: Job, payload: bytes) -> Outcome:
    """Run the handler once. Cancelling the awaiting task stops the handler and raises."""
    try:
        arguments = endpoint.decode(payload)
        if endpoint.job_parameter is not None:
            arguments[endpoint.job_parameter] = job
        value = await endpoint.function(**arguments)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise  # the task was cancelled from outside, for a known reason
        # Nobody cancelled the task: the handler awaited something that was cancelled.
        log_error(job, error)
        return outcome_of_error(error)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it raises is its outcome
        # SystemExit from a handler must not end the worker, with every other job in it.
        log_error(job, error)
        return outcome_of_error(error)
    return outcome_of_value(value)


class Executors:
    """The three executors of a worker."""

    def __init__(self, settings: Settings, temp_root: TempRoot) -> None:
        concurrency = sum(policy.concurrency for policy in settings.lanes.values())
        self._threads = ThreadExecutor(concurrency)
        self._isolated = IsolatedExecutor(temp_root)

    def run(self, endpoint: Endpoint, job: Job, payload: bytes) -> Coroutine[Any, Any, Outcome]:
        """Run the handler once. Cancelling the awaiting task stops it as far as possible."""
        match endpoint.kind:
            case "inline":
                return run(endpoint, job, payload)
            case "thread":
                return self._threads.run(endpoint, job, payload)
            case "isolated":
                return self._isolated.run(endpoint, job, payload)
            case _:
                assert_never(endpoint.kind)

    @property
    def abandoned_threads(self) -> int:
        """How many threads run abandoned handlers that did not stop."""
        return self._threads.abandoned

    def threads_held_against(self, endpoint: Endpoint) -> int:
        """How many such threads prevent an endpoint's jobs from running; 0 if they may run."""
        return self._threads.held_against(endpoint.name) if endpoint.kind == "thread" else 0

    def close(self) -> None:
        self._threads.close()
