"""Sends each job to where its handler runs: the event loop, a thread, or its own process."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, assert_never

from coatcheck.domain.outcome import Outcome
from coatcheck.job import Job
from coatcheck.service import Endpoint
from coatcheck.settings import Settings
from coatcheck.worker.executors import inline
from coatcheck.worker.executors.isolated import IsolatedExecutor
from coatcheck.worker.executors.thread import ThreadExecutor
from coatcheck.worker.tempdirs import TempRoot


class Executors:
    """The three ways to run a handler, for one worker."""

    def __init__(self, settings: Settings, temp_root: TempRoot) -> None:
        concurrency = sum(policy.concurrency for policy in settings.lanes.values())
        self._threads = ThreadExecutor(concurrency)
        self._isolated = IsolatedExecutor(temp_root)

    def run(self, endpoint: Endpoint, job: Job, payload: bytes) -> Coroutine[Any, Any, Outcome]:
        """Run the handler once. Cancelling the task that awaits this stops it as far as can be."""
        match endpoint.kind:
            case "inline":
                return inline.run(endpoint, job, payload)
            case "thread":
                return self._threads.run(endpoint, job, payload)
            case "isolated":
                return self._isolated.run(endpoint, job, payload)
            case _:
                assert_never(endpoint.kind)

    @property
    def abandoned_threads(self) -> int:
        """How many threads run handlers that did not stop when they were given up."""
        return self._threads.abandoned

    def threads_held_against(self, endpoint: Endpoint) -> int:
        """How many such threads keep an endpoint's jobs from being run; 0 if they may be."""
        return self._threads.held_against(endpoint.name) if endpoint.kind == "thread" else 0

    def close(self) -> None:
        self._threads.close()
