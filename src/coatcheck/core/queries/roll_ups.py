"""Queries about job statistics by time step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import NamedTuple

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
    for (_, lane), each in counted.jobs.items():
        jobs.setdefault((EVERYBODY, lane), JobCounts()).add(each)
    failures = dict(counted.failures)
    for (_, code), number in counted.failures.items():
        failures[EVERYBODY, code] = failures.get((EVERYBODY, code), 0) + number
    counts = [*jobs.values()]
    await sql.fetch(
        db,
        "roll_ups/add",
        orgs=[org for org, _ in jobs],
        lanes=[lane for _, lane in jobs],
        submitted=[each.submitted for each in counts],
        started=[each.started for each in counts],
        completed=[each.completed for each in counts],
        failed=[each.failed for each in counts],
        cancelled=[each.cancelled for each in counts],
        retried=[each.retried for each in counts],
        rescued=[each.rescued for each in counts],
        waits=[_literal(each.waits) for each in counts],
        runs=[_literal(each.runs) for each in counts],
        failure_orgs=[org for org, _ in failures],
        failure_codes=[code for _, code in failures],
        failure_jobs=[*failures.values()],
    )


async def series(
    db: Connection, org: str, *, step_seconds: int, since: datetime, interval_seconds: int
) -> list[Interval]:
    """The intervals from ``since`` on; empty ones are left out."""
    rows = await sql.fetch(
        db,
        "roll_ups/series",
        org=org,
        step_seconds=step_seconds,
        since=since,
        interval_seconds=interval_seconds,
    )
    intervals = groupby((Interval(*row) for row in rows), key=lambda each: each.since)
    return [_sum(since, list(parts)) for since, parts in intervals]


async def failures(
    db: Connection, org: str, *, step_seconds: int, since: datetime, codes_max: int
) -> list[tuple[str, int]]:
    """The error codes of failed jobs and their counts, most frequent first."""
    rows = await sql.fetch(
        db,
        "roll_ups/failures",
        org=org,
        step_seconds=step_seconds,
        since=since,
        codes_max=codes_max,
    )
    return [(row["code"], row["jobs"]) for row in rows]


async def recent(db: Connection, org: str, lane: str, minutes: int) -> list[Minute]:
    """The last minutes in which a lane had any activity, newest first."""
    rows = await sql.fetch(db, "roll_ups/recent", org=org, lane=lane, minutes=minutes)
    return [Minute(*row) for row in rows]


async def prune(db: Connection, kept_seconds: Mapping[int, int], rows_max: int) -> int:
    """Delete expired rows. Returns how many, of the table that had more."""
    deleted: int = await sql.value(
        db,
        "roll_ups/prune",
        step_seconds=list(kept_seconds),
        keep_seconds=list(kept_seconds.values()),
        rows_max=rows_max,
    )
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
