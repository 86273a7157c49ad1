"""Counts what becomes of jobs, in this process, until it is added to the roll-ups in the database.

There is one tally for each database, whoever asks for it: a server's engine and its upkeep share
one. Everything here is called once a batch, from where the batch's commit is known; what a killed
process had not yet added is lost (docs/adr/0028).
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakKeyDictionary, WeakValueDictionary

from coatcheck.domain.durations import BOUNDS_SECONDS, BUCKETS, bucket_of
from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.states import State

EVERYBODY: Final = "*"
"""What the sums over all organisations are kept under; no organisation can be called so."""
_CODES_MAX: Final = 200
OTHER_CODES: Final = "other"
"""Handlers name their own error codes; what one organisation makes up beyond so many is this."""
_CODES_KNOWN_SECONDS: Final = 3_600.0
"""For how long they count: by the flush, an hour's roll-up would have a hundred thousand."""


@dataclass(slots=True)
class Counts:
    """What became of the jobs of one organisation in one lane."""

    submitted: int = 0
    started: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0
    rescued: int = 0
    waits: list[int] = field(default_factory=lambda: [0] * BUCKETS)
    runs: list[int] = field(default_factory=lambda: [0] * BUCKETS)

    def add(self, other: Counts) -> None:
        self.submitted += other.submitted
        self.started += other.started
        self.completed += other.completed
        self.failed += other.failed
        self.cancelled += other.cancelled
        self.retried += other.retried
        self.rescued += other.rescued
        self.waits = [mine + more for mine, more in zip(self.waits, other.waits, strict=True)]
        self.runs = [mine + more for mine, more in zip(self.runs, other.runs, strict=True)]


@dataclass(slots=True)
class Counted:
    """What was counted: by organisation and lane, and failures by organisation and code."""

    jobs: dict[tuple[str, str], Counts] = field(default_factory=dict)
    failures: dict[tuple[str, str], int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.jobs or self.failures)


class Tally:
    """Counts for one database. Not for several threads."""

    def __init__(self) -> None:
        self._counted = Counted()
        self._codes: dict[str, set[str]] = {}
        self._codes_since = time.monotonic()
        self._flushing: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = (
            WeakKeyDictionary()
        )
        self.flushed_at = 0.0
        """By the process's monotonic clock: who flushes leaves the others nothing to do."""

    def flushing(self) -> asyncio.Lock:
        """For whoever adds what was counted, in the running loop: a program that embeds an engine
        may have another loop by now."""
        return self._flushing.setdefault(asyncio.get_running_loop(), asyncio.Lock())

    def submitted(self, jobs: Mapping[tuple[str, str], int]) -> None:
        """So many jobs were created, by organisation and lane."""
        for (org, lane), count in jobs.items():
            self._of(org, lane).submitted += count

    def started(self, jobs: Iterable[ClaimedJob]) -> None:
        """These were claimed, each after its wait."""
        known = self._counted.jobs
        for job in jobs:
            counts = known.get((job.org, job.lane)) or self._of(job.org, job.lane)
            counts.started += 1
            counts.waits[bisect_left(BOUNDS_SECONDS, job.waited_seconds)] += 1

    def completed(self, jobs: Iterable[tuple[ClaimedJob, float]]) -> None:
        """These completed, each after its last attempt had run for so many seconds."""
        known = self._counted.jobs
        for job, ran_seconds in jobs:
            counts = known.get((job.org, job.lane)) or self._of(job.org, job.lane)
            counts.completed += 1
            counts.runs[bisect_left(BOUNDS_SECONDS, ran_seconds)] += 1

    def moved(
        self,
        org: str,
        lane: str,
        state: State,
        *,
        code: str | None = None,
        ran_seconds: float | None = None,
        jobs: int = 1,
    ) -> None:
        """Jobs ended without a result, or an attempt failed that is tried again; ``code`` says with
        which error. Any other state is nothing to count."""
        counts = self._of(org, lane)
        if state is State.FAILED:
            counts.failed += jobs
            self._failed(org, code or OTHER_CODES, jobs)
        elif state is State.CANCELLED:
            counts.cancelled += jobs
        elif state is State.COMPLETED:
            counts.completed += jobs
        elif state is State.RETRYING:
            counts.retried += jobs
        else:
            return
        if ran_seconds is not None:
            counts.runs[bucket_of(ran_seconds)] += jobs

    def rescued(self, org: str, lane: str, state: State, code: str | None) -> None:
        """A job was taken from a dead or silent worker, and went to this state."""
        self._of(org, lane).rescued += 1
        self.moved(org, lane, state, code=code)

    def take(self) -> Counted:
        """What was counted since the last time; it is the caller's to add now."""
        counted, self._counted = self._counted, Counted()
        now = time.monotonic()
        if now - self._codes_since >= _CODES_KNOWN_SECONDS:
            self._codes, self._codes_since = {}, now
        return counted

    def give_back(self, counted: Counted) -> None:
        """It could not be added: it counts again."""
        for (org, lane), counts in counted.jobs.items():
            self._of(org, lane).add(counts)
        for (org, code), jobs in counted.failures.items():
            self._failed(org, code, jobs)

    def _of(self, org: str, lane: str) -> Counts:
        jobs = self._counted.jobs
        counts = jobs.get((org, lane))
        if counts is None:
            counts = jobs[org, lane] = Counts()
        return counts

    def _failed(self, org: str, code: str, jobs: int) -> None:
        known = self._codes.setdefault(org, set())
        if code not in known:
            if len(known) >= _CODES_MAX:
                code = OTHER_CODES
            known.add(code)
        failures = self._counted.failures
        failures[org, code] = failures.get((org, code), 0) + jobs


class NoTally(Tally):
    """For what is not to be counted: nobody takes what is, and it would grow."""

    def _of(self, org: str, lane: str) -> Counts:  # noqa: ARG002 - whose it is does not matter
        return Counts()

    def _failed(self, org: str, code: str, jobs: int) -> None:
        pass


_tallies: Final[WeakValueDictionary[str, Tally]] = WeakValueDictionary()


def tally_of(database_url: str) -> Tally:
    """The process's tally for a database. Gone, with what nobody added, when its last user is."""
    tally = _tallies.get(database_url)
    if tally is None:
        tally = _tallies[database_url] = Tally()
    return tally
