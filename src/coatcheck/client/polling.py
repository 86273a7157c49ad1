"""Waits by asking: questions that the server holds, one after the other, until the end has come."""

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
    """How long each question is to be held, and how long to stay away before the next one."""

    def __init__(self, timeout: float | None, *, hold: float = POLL_SECONDS) -> None:
        self.deadline = Deadline(timeout)
        self._hold = hold
        self._held = 0.0
        self._asked = Stopwatch()
        self._fruitless = 0

    def next_hold(self) -> float:
        """The seconds for which the question that is asked now is to be held."""
        self._held = min(self._hold, self.deadline.remaining())
        self._asked = Stopwatch()
        return self._held

    def pause(self, found: JobBody | JobDetails | BatchBody | GraphJob) -> float:
        """The seconds to stay away after an answer that is not the end. Raises WaitTimeout."""
        if self.deadline.passed:
            raise WaitTimeout(found, self.deadline.seconds)
        if self._asked.seconds >= self._held / 2:
            self._fruitless = 0
            return 0.0
        # A server that is about to stop does not hold; nor must this become a busy loop.
        delay = BACKOFF.delay(self._fruitless, random.random())
        self._fruitless += 1
        return min(delay, self.deadline.remaining())
