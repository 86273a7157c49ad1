"""In-memory job statistics, flushed to the roll-ups in the database.

There is one ``JobStats`` per database in a process: a server's engine and its maintenance loops
share it. Everything here is called once per batch, after the batch's commit. What a killed process
had not flushed is lost (docs/adr/0028).
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakKeyDictionary, WeakValueDictionary

from coatcheck.domain.durations import BOUNDS_SECONDS, BUCKETS, bucket_of
from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.states import State

EVERYBODY: Final = "*"
"""The key of the sums over all organisations; no organisation can have this name."""
_CODES_MAX: Final = 200
OTHER_CODES: Final = "other"
"""Handlers choose their own error codes; an organisation's codes beyond the limit become this."""
_CODES_KNOWN_SECONDS: Final = 3_600.0
"""How long codes are remembered. If it were per flush, an hour's roll-up could have 100,000."""


@dataclass(slots=True)
class JobCounts:
    """Job counts of one organisation in one lane."""

    submitted: int = 0
    started: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0
    rescued: int = 0
    waits: list[int] = field(default_factory=lambda: [0] * BUCKETS)
    runs: list[int] = field(default_factory=lambda: [0] * BUCKETS)

    def add(self, other: JobCounts) -> None:
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
    """Counts by organisation and lane, and failures by organisation and code."""

    jobs: dict[tuple[str, str], JobCounts] = field(default_factory=dict)
    failures: dict[tuple[str, str], int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.jobs or self.failures)


class JobStats:
    """Counts for one database. Not thread-safe."""

    def __init__(self) -> None:
        self._counted = Counted()
        self._codes: dict[str, set[str]] = {}
        self._codes_since = time.monotonic()
        self._flushing: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = (
            WeakKeyDictionary()
        )
        self.flushed_at = 0.0
        """In the process's monotonic clock: after a flush, other users have nothing to flush."""

    def flushing(self) -> asyncio.Lock:
        """The lock that a flush holds, for the running loop: a program that embeds an engine may
        use several loops over time."""
        return self._flushing.setdefault(asyncio.get_running_loop(), asyncio.Lock())

    def submitted(self, jobs: Mapping[tuple[str, str], int]) -> None:
        """Count created jobs, by organisation and lane."""
        for (org, lane), count in jobs.items():
            self._of(org, lane).submitted += count

    def started(self, jobs: Iterable[ClaimedJob]) -> None:
        """Count claimed jobs and their waits."""
        known = self._counted.jobs
        for job in jobs:
            counts = known.get((job.org, job.lane)) or self._of(job.org, job.lane)
            counts.started += 1
            counts.waits[bisect_left(BOUNDS_SECONDS, job.waited_seconds)] += 1

    def completed(self, jobs: Sequence[ClaimedJob], ran_seconds: Sequence[float]) -> None:
        """Count completed jobs and the run time of the last attempt of each."""
        known = self._counted.jobs
        for job, seconds in zip(jobs, ran_seconds, strict=True):
            counts = known.get((job.org, job.lane)) or self._of(job.org, job.lane)
            counts.completed += 1
            counts.runs[bisect_left(BOUNDS_SECONDS, seconds)] += 1

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
        """Count jobs that ended without a result, or attempts that failed and will be retried;
        ``code`` is the error code. Other states are ignored."""
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
        """Count a job that was reclaimed from a dead or silent worker and moved to ``state``."""
        self._of(org, lane).rescued += 1
        self.moved(org, lane, state, code=code)

    def take(self) -> Counted:
        """Take the counts since the last call; the caller must flush them."""
        counted, self._counted = self._counted, Counted()
        now = time.monotonic()
        if now - self._codes_since >= _CODES_KNOWN_SECONDS:
            self._codes, self._codes_since = {}, now
        return counted

    def give_back(self, counted: Counted) -> None:
        """Return counts that could not be flushed."""
        for (org, lane), counts in counted.jobs.items():
            self._of(org, lane).add(counts)
        for (org, code), jobs in counted.failures.items():
            self._failed(org, code, jobs)

    def _of(self, org: str, lane: str) -> JobCounts:
        jobs = self._counted.jobs
        counts = jobs.get((org, lane))
        if counts is None:
            counts = jobs[org, lane] = JobCounts()
        return counts

    def _failed(self, org: str, code: str, jobs: int) -> None:
        known = self._codes.setdefault(org, set())
        if code not in known:
            if len(known) >= _CODES_MAX:
                code = OTHER_CODES
            known.add(code)
        failures = self._counted.failures
        failures[org, code] = failures.get((org, code), 0) + jobs


class NoJobStats(JobStats):
    """Statistics that discard everything, for callers that nobody flushes."""

    def _of(self, org: str, lane: str) -> JobCounts:  # noqa: ARG002 - counted for nobody
        return JobCounts()

    def _failed(self, org: str, code: str, jobs: int) -> None:
        pass


_tallies: Final[WeakValueDictionary[str, JobStats]] = WeakValueDictionary()


def job_stats_of(database_url: str) -> JobStats:
    """The process's statistics for a database. They are dropped, unflushed, with the last user."""
    job_stats = _tallies.get(database_url)
    if job_stats is None:
        job_stats = _tallies[database_url] = JobStats()
    return job_stats
