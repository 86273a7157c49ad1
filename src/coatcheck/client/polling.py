"""Long-polling: requests that the server holds, repeated until the end has come."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from coatcheck.client.deadline import Deadline, Stopwatch
from coatcheck.client.errors import WaitTimeout
from coatcheck.client.retries import BACKOFF

if TYPE_CHECKING:
    from coatcheck.client.batch_body import BatchBody
    from coatcheck.client.console_body import JobDetails
    from coatcheck.client.graph_body import GraphJob
    from coatcheck.client.job_body import JobBody

POLL_SECONDS: Final = 30.0


class Polling:
    """How long the server should hold each poll, and the pause before the next one."""

    def __init__(self, timeout: float | None, *, hold: float = POLL_SECONDS) -> None:
        self.deadline = Deadline(timeout)
        self._hold = hold
        self._held = 0.0
        self._asked = Stopwatch()
        self._fruitless = 0

    def next_hold(self) -> float:
        """The seconds for which the server should hold the poll that starts now."""
        self._held = min(self._hold, self.deadline.remaining())
        self._asked = Stopwatch()
        return self._held

    def pause(self, found: JobBody | JobDetails | BatchBody | GraphJob) -> float:
        """The seconds to pause after an answer that is not the end. Raises WaitTimeout."""
        if self.deadline.passed:
            raise WaitTimeout(found, self.deadline.seconds)
        if self._asked.seconds >= self._held / 2:
            self._fruitless = 0
            return 0.0
        # A server that is shutting down does not hold polls; this must not become a busy loop.
        delay = BACKOFF.delay(self._fruitless, random.random())
        self._fruitless += 1
        return min(delay, self.deadline.remaining())
