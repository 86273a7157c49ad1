"""Queries about job statistics by time step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any, NamedTuple

from coatcheck.core.queries import sql
from coatcheck.db.connection import Connection
from coatcheck.domain.durations import summed, trimmed
from coatcheck.telemetry.job_stats import EVERYBODY, Counted, JobCounts

Distribution = Sequence[int]
"""How many durations fell into each bucket of ``domain/durations.py``."""


class Interval(NamedTuple):
    """The counts from ``since`` until the next interval."""

    since: datetime
    submitted: int
    started: int
    completed: int
    failed: int
    cancelled: int
    retried: int
    rescued: int
    waits: Distribution
    runs: Distribution


class Minute(NamedTuple):
    """The counts of a lane in one minute, of which ``seconds`` have passed."""

    started: int
    waits: Distribution
    runs: Distribution
    seconds: float


async def add(db: Connection, counted: Counted) -> None:
    """Add counts to the rows of each organisation and of all together."""
    jobs = dict(counted.jobs)
    for (_, lane), counts in counted.jobs.items():
        jobs.setdefault((EVERYBODY, lane), JobCounts()).add(counts)
    failures = dict(counted.failures)
    for (_, code), number in counted.failures.items():
        failures[EVERYBODY, code] = failures.get((EVERYBODY, code), 0) + number
    rows = [
        (
            org,
            lane,
            each.submitted,
            each.started,
            each.completed,
            each.failed,
            each.cancelled,
            each.retried,
            each.rescued,
            _literal(each.waits),
            _literal(each.runs),
        )
        for (org, lane), each in jobs.items()
    ]
    codes = [(org, code, number) for (org, code), number in failures.items()]
    await db.fetch(sql("roll_ups/add"), *_columns(rows, 11), *_columns(codes, 3))


async def series(
    db: Connection, org: str, *, step_seconds: int, since: datetime, interval_seconds: int
) -> list[Interval]:
    """The intervals from ``since`` on; empty ones are left out."""
    rows = await db.fetch(sql("roll_ups/series"), org, step_seconds, since, interval_seconds)
    intervals = groupby((Interval(*row) for row in rows), key=lambda each: each.since)
    return [_sum(since, list(parts)) for since, parts in intervals]


async def failures(
    db: Connection, org: str, *, step_seconds: int, since: datetime, codes_max: int
) -> list[tuple[str, int]]:
    """The error codes of failed jobs and their counts, most frequent first."""
    rows = await db.fetch(sql("roll_ups/failures"), org, step_seconds, since, codes_max)
    return [(row["code"], row["jobs"]) for row in rows]


async def recent(db: Connection, org: str, lane: str, minutes: int) -> list[Minute]:
    """The last minutes in which a lane had any activity, newest first."""
    rows = await db.fetch(sql("roll_ups/recent"), org, lane, minutes)
    return [Minute(*row) for row in rows]


async def prune(db: Connection, kept_seconds: Mapping[int, int], rows_max: int) -> int:
    """Delete expired rows. Returns how many, of the table that had more."""
    rows = await db.fetch(
        sql("roll_ups/prune"), list(kept_seconds), list(kept_seconds.values()), rows_max
    )
    deleted: int = rows[0]["rows"]
    return deleted


def _sum(since: datetime, parts: Sequence[Interval]) -> Interval:
    return Interval(
        since,
        sum(each.submitted for each in parts),
        sum(each.started for each in parts),
        sum(each.completed for each in parts),
        sum(each.failed for each in parts),
        sum(each.cancelled for each in parts),
        sum(each.retried for each in parts),
        sum(each.rescued for each in parts),
        summed([each.waits for each in parts]),
        summed([each.runs for each in parts]),
    )


def _literal(counts: Sequence[int]) -> str:
    return f"{{{','.join(map(str, trimmed(counts)))}}}"


def _columns(rows: Sequence[Sequence[Any]], width: int) -> list[list[Any]]:
    return [[row[at] for row in rows] for at in range(width)]
