"""What happened lately, counted by steps of time. One method a file of ``sql/roll_ups``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any, NamedTuple

from coatcheck.core.sql import sql
from coatcheck.db.connection import Connection
from coatcheck.domain.durations import summed, trimmed
from coatcheck.telemetry.job_stats import EVERYBODY, Counted, JobCounts

Distribution = Sequence[int]
"""How many durations fell into each bucket of ``domain/durations.py``."""


class Stretch(NamedTuple):
    """What happened from ``since`` on, until the next one begins."""

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
    """How a lane got on in one minute, of which so many ``seconds`` have passed."""

    started: int
    waits: Distribution
    runs: Distribution
    seconds: float


async def add(db: Connection, counted: Counted) -> None:
    """Add what was counted, to each organisation and to the sums over all of them."""
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
    db: Connection, org: str, *, step_seconds: int, since: datetime, stretch_seconds: int
) -> list[Stretch]:
    """What happened from ``since`` on, in stretches; those without anything are left out."""
    rows = await db.fetch(sql("roll_ups/series"), org, step_seconds, since, stretch_seconds)
    stretches = groupby((Stretch(*row) for row in rows), key=lambda each: each.since)
    return [_sum(since, list(parts)) for since, parts in stretches]


async def failures(
    db: Connection, org: str, *, step_seconds: int, since: datetime, codes_max: int
) -> list[tuple[str, int]]:
    """The errors that jobs failed with, and how many, most frequent first."""
    rows = await db.fetch(sql("roll_ups/failures"), org, step_seconds, since, codes_max)
    return [(row["code"], row["jobs"]) for row in rows]


async def lately(db: Connection, org: str, lane: str, minutes: int) -> list[Minute]:
    """The last minutes of a lane in which anything happened, newest first."""
    rows = await db.fetch(sql("roll_ups/lately"), org, lane, minutes)
    return [Minute(*row) for row in rows]


async def prune(db: Connection, kept_seconds: Mapping[int, int], rows_max: int) -> int:
    """Delete what is older than its step is kept. How many rows of the kind that had most."""
    rows = await db.fetch(
        sql("roll_ups/prune"), list(kept_seconds), list(kept_seconds.values()), rows_max
    )
    deleted: int = rows[0]["rows"]
    return deleted


def _sum(since: datetime, parts: Sequence[Stretch]) -> Stretch:
    return Stretch(
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
