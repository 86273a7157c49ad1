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
from coatcheck.domain.listing import PageQuery
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
    rows = await sql.fetch(
        db, "org_jobs/get", org=org, job=job_id, result_bytes_max=RESULT_SHOWN_BYTES_MAX
    )
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
    return [_job(row) for row in await sql.fetch(db, "org_jobs/find", org=org, keys=keys)]


async def walk(
    db: Connection,
    way: Way,
    job_filter: OrgJobFilter,
    asked: PageQuery,
    *,
    rows_max: int,
    limit: int,
) -> Walked:
    """Matching jobs, newest first, passing at most ``rows_max`` jobs. Raises TookTooLong."""
    rows = await job_store.fetch_in_time(
        db,
        f"org_jobs/{way}",
        **job_filter.arguments(),
        **asked.arguments(),
        rows_max=rows_max,
        limit=limit,
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
    rows = await job_store.fetch_in_time(
        db,
        "org_jobs/changes",
        org=org,
        reader=reader,
        rows_max=rows_max,
        since=cursor.since,
        until=cursor.until,
        after=cursor.after,
        limit=limit,
    )
    found = [_job(tuple(row)[1:]) for row in rows if row["id"] is not None]
    return Changes(rows[0]["seen"], [(job.uuid, job) for job in found])


async def attempts(
    db: Connection, org: str, job_id: UUID
) -> tuple[Sequence[Attempt], datetime | None]:
    """The attempts that did not complete, and when a remote last began to run the job."""
    rows = await sql.fetch(db, "org_jobs/attempts", org=org, job=job_id)
    spawned = next((row["spawned_at"] for row in rows if row["spawned_at"] is not None), None)
    return [_decode_attempt(row["data"]) for row in rows if row["data"] is not None], spawned


async def log(
    db: Connection, org: str, job_id: UUID, *, after: int, rows_max: int, limit: int
) -> tuple[Sequence[LogEntry], int | None]:
    """A job's log for people, and the number to continue after; None if that was all."""
    rows = await sql.fetch(
        db, "org_jobs/log", org=org, job=job_id, after=after, rows_max=rows_max, limit=limit
    )
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
    rows = await sql.fetch(db, "org_jobs/input", org=org, job=job_id)
    return rows[0]["payload"] if rows else None


async def retry(db: Connection | RawConnection, old: UUID, new: NewJob) -> Retried | None:
    """Create ``new`` with the input of ``old``, unless it has its own. None: no such job."""
    row = await sql.first(
        db,
        "org_jobs/retry",
        org=new.org,
        old=old,
        new=new.uuid,
        idempotency_key=new.idempotency_key,
        fingerprint=new.fingerprint,
        request_id=new.request_id,
        payload=new.payload or None,
        options=new.options,
    )
    return None if row is None else Retried(State(row["state"]), row["input_kept"], row["created"])


def _job(row: asyncpg.Record | Sequence[Any]) -> OrgJob:
    values = tuple(row)
    run, index, *rest = values[_VIEW_COLUMNS:]
    task = None if run is None else Task(run, index)
    return OrgJob(job_store.read_view(values[:_VIEW_COLUMNS]), task, *rest)
