"""Queries about the jobs of all products, for those who manage them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple
from uuid import UUID

import asyncpg
import msgspec

from coatcheck.core.queries import jobs as job_store
from coatcheck.core.queries import sql
from coatcheck.db.connection import Connection, RawConnection
from coatcheck.domain.changes import ChangeCursor, Changes
from coatcheck.domain.job import JobView, NewJob
from coatcheck.domain.org_jobs import (
    RESULT_SHOWN_BYTES_MAX,
    Attempt,
    LogEntry,
    OrgJob,
    OrgJobFilter,
    Task,
)
from coatcheck.domain.states import State

Way = Literal["walk", "walk_unsuccessful", "walk_live"]
"""The index by which jobs are found."""

_VIEW_COLUMNS: Final = len(dataclasses.fields(JobView))
_decode_attempt: Final = msgspec.json.Decoder(Attempt).decode


class Walked(NamedTuple):
    """The jobs that a walk found, how many it passed, and the last of them."""

    items: list[OrgJob]
    rows: int
    last: UUID | None


class Retried(NamedTuple):
    """The state of the job to retry, and whether the new job was created."""

    state: State
    input_kept: bool
    created: bool


async def get(db: Connection, org: str, job_id: UUID) -> OrgJob | None:
    """A job, with its result unless that is long."""
    rows = await db.fetch(sql("org_jobs/get"), org, job_id, RESULT_SHOWN_BYTES_MAX)
    if not rows:
        return None
    *common, result, group, service, endpoint = rows[0]
    job = _job(common)
    view = dataclasses.replace(job.view, result=result)
    task = job.task
    if task is not None:
        task = dataclasses.replace(task, group=group, service=service, endpoint=endpoint)
    return dataclasses.replace(job, view=view, task=task)


async def find(db: Connection, org: str, keys: Sequence[str]) -> list[OrgJob]:
    """The jobs that hold any of these idempotency keys."""
    return [_job(row) for row in await db.fetch(sql("org_jobs/find"), org, keys)]


async def walk(
    db: Connection,
    way: Way,
    job_filter: OrgJobFilter,
    *,
    below: UUID,
    above: UUID,
    rows_max: int,
    limit: int,
) -> Walked:
    """Matching jobs with ids below ``below``, newest first, passing at most ``rows_max`` jobs.
    Raises TookTooLong."""
    rows = await job_store.fetch_in_time(
        db,
        f"org_jobs/{way}",
        job_filter.org,
        below,
        above,
        None if job_filter.states is None else [state.value for state in job_filter.states],
        None if job_filter.lane is None else job_filter.lane.value,
        job_filter.services,
        job_filter.other_services_than,
        job_filter.endpoint,
        job_filter.reader,
        job_filter.owner,
        job_filter.error_code,
        job_filter.created_after,
        job_filter.created_before,
        job_filter.request_id,
        job_filter.retryable,
        rows_max,
        limit,
    )
    found = [_job(tuple(row)[2:]) for row in rows if row["id"] is not None]
    return Walked(found, rows[0]["walked_rows"], rows[0]["walked_to"])


async def changes(
    db: Connection,
    org: str,
    reader: str | None,
    cursor: ChangeCursor,
    *,
    rows_max: int,
    limit: int,
) -> Changes[OrgJob]:
    """The changes after the cursor among the newest ``rows_max`` jobs. Raises TookTooLong."""
    _, values = sql.bound(
        "org_jobs/changes",
        org=org,
        reader=reader,
        rows_max=rows_max,
        since=cursor.since,
        until=cursor.until,
        after=cursor.after,
        limit=limit,
    )
    rows = await job_store.fetch_in_time(db, "org_jobs/changes", *values)
    found = [_job(tuple(row)[1:]) for row in rows if row["id"] is not None]
    return Changes(rows[0]["seen"], [(job.uuid, job) for job in found])


async def attempts(
    db: Connection, org: str, job_id: UUID
) -> tuple[Sequence[Attempt], datetime | None]:
    """The attempts that did not complete, and when a remote last began to run the job."""
    rows = await db.fetch(sql("org_jobs/attempts"), org, job_id)
    spawned = next((row["spawned_at"] for row in rows if row["spawned_at"] is not None), None)
    return [_decode_attempt(row["data"]) for row in rows if row["data"] is not None], spawned


async def log(
    db: Connection, org: str, job_id: UUID, *, after: int, rows_max: int, limit: int
) -> tuple[Sequence[LogEntry], int | None]:
    """A job's log for people, and the number to continue after; None if that was all."""
    rows = await db.fetch(sql("org_jobs/log"), org, job_id, after, rows_max, limit)
    entries = [
        LogEntry(row["seq"], row["kind"], msgspec.json.decode(row["data"]), row["at"])
        for row in rows
        if row["seq"] is not None
    ]
    if len(entries) == limit:
        return entries, entries[-1].seq
    return entries, rows[0]["walked_to"] if rows[0]["walked_rows"] == rows_max else None


async def input_of(db: Connection, org: str, job_id: UUID) -> bytes | None:
    """A job's payload; None if the job does not exist or its payload is not kept."""
    rows = await db.fetch(sql("org_jobs/input"), org, job_id)
    return rows[0]["payload"] if rows else None


async def retry(db: Connection | RawConnection, old: UUID, new: NewJob) -> Retried | None:
    """Create ``new`` with the input of ``old``. None if there is no such job."""
    return retry_answer(await db.fetch(sql("org_jobs/retry"), *retry_arguments(old, new)))


def retry_arguments(old: UUID, new: NewJob) -> list[Any]:
    """The parameters $1 to $8 of ``retry_created``. An empty payload means that of ``old``."""
    return [
        new.org,
        old,
        new.uuid,
        new.idempotency_key,
        new.fingerprint,
        new.request_id,
        new.payload or None,
        new.options,
    ]


def retry_answer(rows: Sequence[asyncpg.Record]) -> Retried | None:
    """The answer of a statement that retries a job."""
    if not rows:
        return None
    row = rows[0]
    return Retried(State(row["state"]), row["input_kept"], row["created"])


def _job(row: asyncpg.Record | Sequence[Any]) -> OrgJob:
    values = tuple(row)
    run, index, *rest = values[_VIEW_COLUMNS:]
    task = None if run is None else Task(run, index)
    return OrgJob(job_store.read_view(values[:_VIEW_COLUMNS]), task, *rest)
