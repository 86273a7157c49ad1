"""Queries of the maintenance loops."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cache
from uuid import UUID

import asyncpg

from coatcheck.core.queries import sql
from coatcheck.db.connection import Connection
from coatcheck.db.queries import fetch_or_die, find, query_or_die
from coatcheck.domain.artifacts import BlobToDelete
from coatcheck.domain.limits import CRASHES_TOGETHER_MAX
from coatcheck.domain.retry import CRASH_BACKOFF, Backoff
from coatcheck.domain.states import State
from coatcheck.installed import product_folders


@dataclass(frozen=True, slots=True)
class Rescued:
    """A job that was taken from its worker or has expired, and its new state."""

    uuid: UUID
    endpoint: str
    state: State
    org: str
    lane: str
    error_code: str | None
    request_id: str | None
    """The id of the request that submitted it."""
    attempts: int

    @classmethod
    def of(cls, row: asyncpg.Record) -> Rescued:
        return cls(
            row["id"],
            row["endpoint"],
            State(row["state"]),
            row["org_id"],
            row["lane"],
            row["error_code"],
            row["request_id"],
            row["attempts"],
        )


@dataclass(frozen=True, slots=True)
class Expired:
    jobs: list[Rescued]
    rows: int
    """How many deadlines were looked at, also of jobs that have ended or run."""


@dataclass(frozen=True, slots=True)
class DueJob:
    uuid: UUID
    endpoint: str


@dataclass(frozen=True, slots=True)
class PrunedJobs:
    jobs: int
    blobs: list[BlobToDelete]


async def queue_due(db: Connection, rows_max: int) -> list[DueJob]:
    """Queue jobs that are due."""
    rows = await query_or_die(
        db, "stage.updated_not_committed", sql, "maintenance/queue_due", rows_max=rows_max
    )
    return [DueJob(row["id"], row["endpoint"]) for row in rows]


async def next_due_seconds(db: Connection) -> float | None:
    """Seconds until the next job is due."""
    seconds: float | None = await sql.value(db, "maintenance/next_due")
    return seconds


async def rescue(
    db: Connection,
    *,
    crashes_max: int,
    keep_failed_seconds: int,
    rows_max: int,
    crashes_together_max: int = CRASHES_TOGETHER_MAX,
    backoff: Backoff = CRASH_BACKOFF,
) -> list[Rescued]:
    """Take jobs from workers that are dead or silent."""
    rows = await query_or_die(
        db,
        "rescue.updated_not_committed",
        sql,
        "maintenance/rescue",
        crashes_max=crashes_max,
        keep_seconds=keep_failed_seconds,
        rows_max=rows_max,
        crashes_together_max=crashes_together_max,
        delays=[backoff.delay(before, 0.0) for before in range(crashes_together_max)],
        jitter=backoff.jitter,
    )
    return [*map(Rescued.of, rows)]


async def sweep_claims(
    db: Connection, after: tuple[str, int], rows_max: int
) -> tuple[str, int] | None:
    """Clean up a page of claims. Returns where the next one begins; None after the last one."""
    after_org, after_lease = after
    rows = await sql.fetch(
        db,
        "maintenance/sweep_claims",
        after_org=after_org,
        after_lease=after_lease,
        rows_max=rows_max,
    )
    return (rows[0]["org_id"], rows[0]["lease"]) if rows else None


async def prune_workers(db: Connection) -> None:
    """Delete the rows of workers that ended long ago."""
    await sql.fetch(db, "maintenance/prune_workers")


async def expire_waiting(db: Connection, *, keep_failed_seconds: int, rows_max: int) -> Expired:
    """Fail jobs that did not start before their deadline."""
    rows = await query_or_die(
        db,
        "expire.updated_not_committed",
        sql,
        "maintenance/expire_waiting",
        keep_seconds=keep_failed_seconds,
        rows_max=rows_max,
    )
    failed = [Rescued.of(row) for row in rows if row["id"] is not None]
    return Expired(failed, rows[0]["rows"])


async def fail_overrun(
    db: Connection, *, slack_seconds: float, keep_failed_seconds: int, rows_max: int
) -> list[Rescued]:
    """End attempts that their worker holds long past their run deadline."""
    rows = await sql.fetch(
        db,
        "maintenance/fail_overrun",
        slack_seconds=slack_seconds,
        keep_seconds=keep_failed_seconds,
        rows_max=rows_max,
    )
    return [*map(Rescued.of, rows)]


async def clock(db: Connection) -> datetime:
    """The time by the database's clock, the only one that decides."""
    now: datetime = await sql.value(db, "maintenance/clock")
    return now


async def prune(
    db: Connection, rows_max: int, removals: tuple[str, ...] | None = None
) -> PrunedJobs:
    """Delete a chunk of jobs whose retention has ended, and what products store about them.

    ``removals`` are the products' statements (by default, of the installed products), each of which
    deletes rows of one table that belong to the jobs in ``old``. They are parts of one statement,
    so nothing outlives its job.
    """
    statement = _pruning(installed_removals() if removals is None else removals)
    rows = await fetch_or_die(db, "prune.updated_not_committed", statement, rows_max)
    return PrunedJobs(
        rows[0]["jobs"], [BlobToDelete(*blob) for _, *blob in rows if None not in blob]
    )


@cache
def installed_removals() -> tuple[str, ...]:
    """The statements of every installed product, whether it is on or not."""
    return tuple(
        statement
        for folder in product_folders().values()
        if (statement := find(folder / "queries.sql", "removed_with_jobs")) is not None
    )


@cache
def _pruning(removals: tuple[str, ...]) -> str:
    parts = [f"removed_{number} AS (\n{each}\n),\n" for number, each in enumerate(removals)]
    return sql("maintenance/prune").replace("/* removed with jobs */\n", "".join(parts))
