"""An organisation's jobs of all products: list, inspect, retry. For those who manage them."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from coatcheck.core.extension import EngineContext, EngineExtension
from coatcheck.core.queries import sql
from coatcheck.core.queries.jobs import LISTING, fetch_in_time, read_view
from coatcheck.core.submission import Ticket
from coatcheck.db.connection import PINNED_PLANS, Connection, RawConnection
from coatcheck.db.queries import Row
from coatcheck.domain.changes import ChangeCursor, Changes
from coatcheck.domain.errors import (
    InputNotKept,
    JobNotEnded,
    JobNotFound,
    NotFound,
)
from coatcheck.domain.ids import new_id
from coatcheck.domain.job import JobView, NewJob
from coatcheck.domain.listing import PageQuery
from coatcheck.domain.org_jobs import (
    LIVE,
    RESULT_SHOWN_BYTES_MAX,
    UNSUCCESSFUL,
    Attempt,
    LogEntry,
    OrgJob,
    OrgJobFilter,
    OrgJobPage,
    Task,
)
from coatcheck.domain.states import State
from coatcheck.encoding import encode
from coatcheck.telemetry import tracing

WALKED_ROWS_MAX: Final = 10_000
"""How many jobs one page looks at to find those that match."""
FIRST_STEP_ROWS: Final = 500
"""How many it looks at first: after these, most pages are full."""
LIVE_ROWS_MAX: Final = 5_000
_LOG_WALKED_MAX: Final = 5_000
_VIEW_COLUMNS: Final = len(fields(JobView))
_decode_attempt: Final = msgspec.json.Decoder(Attempt).decode


class _Walked(NamedTuple):
    """The jobs that a walk found, how many it passed, and the last of them."""

    items: list[OrgJob]
    rows: int
    last: UUID | None


class Retried(NamedTuple):
    """The state of the job to retry, and whether the new job was created."""

    state: State
    input_kept: bool
    created: bool


SendRetry = Callable[[NewJob], Awaitable[Retried | None]]
"""Creates the new job of a retry. The statement may be sent again if its answer was lost."""


class OrgJobRepository(EngineExtension):
    """Reads and retries the jobs of all products. The caller checks permissions."""

    def __init__(self, context: EngineContext) -> None:
        self._db = context.database.pooled("console", server_settings=PINNED_PLANS)
        self._list_db = context.database.pooled(
            "console lists", server_settings=LISTING, is_long=True
        )
        self._changes_db = context.database.pooled(
            "console changes", server_settings=LISTING, is_long=True
        )
        self._submitter = context.submitter

    async def get(self, org: str, job_id: UUID) -> OrgJob:
        """A job as it is now, with its result if that is short. Raises JobNotFound."""
        row = await sql.first(
            self._db, "org_jobs/get", org=org, job=job_id, result_bytes_max=RESULT_SHOWN_BYTES_MAX
        )
        if row is None:
            raise JobNotFound("there is no such job")
        *common, result, group, service, endpoint = row
        job = _job(common)
        view, task = replace(job.view, result=result), job.task
        if task is not None:
            task = replace(task, group=group, service=service, endpoint=endpoint)
        return replace(job, view=view, task=task)

    async def find(self, org: str, keys: Sequence[str]) -> Sequence[OrgJob]:
        """The jobs that hold any of these idempotency keys."""
        return [_job(row) for row in await sql.fetch(self._db, "org_jobs/find", org=org, keys=keys)]

    async def page(self, job_filter: OrgJobFilter, asked: PageQuery) -> OrgJobPage:
        """A page of jobs, newest first.

        It looks at a bounded number of jobs, whatever the filter. Live and unsuccessful jobs are
        found by indexes of their own; others by a walk over all jobs.
        """
        limit = asked.limit
        if job_filter.states is not None and set(job_filter.states) <= set(LIVE):
            live = await self._walk(
                "org_jobs/walk_live", job_filter, asked, rows_max=LIVE_ROWS_MAX, limit=limit + 1
            )
            if live.rows <= LIVE_ROWS_MAX:
                return _cut(live.items, limit)
        way = "org_jobs/walk"
        if job_filter.states is not None and set(job_filter.states) <= set(UNSUCCESSFUL):
            way = "org_jobs/walk_unsuccessful"
        found: list[OrgJob] = []
        first_step = max(FIRST_STEP_ROWS, limit + 1)
        for rows_max in (first_step, WALKED_ROWS_MAX - first_step):
            step = await self._walk(
                way, job_filter, asked, rows_max=rows_max, limit=limit + 1 - len(found)
            )
            found += step.items
            if len(found) > limit or step.rows < rows_max:
                return _cut(found, limit)
            assert step.last is not None, "it walked over something"
            asked = replace(asked, after=step.last)
        return OrgJobPage(found, asked.after)

    async def changes(
        self, org: str, reader: str | None, cursor: ChangeCursor, *, rows_max: int, limit: int
    ) -> Changes[OrgJob]:
        """The changes among the organisation's newest ``rows_max`` jobs. With ``reader``, only
        those of jobs that this user may read."""
        rows = await fetch_in_time(
            self._changes_db,
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

    async def attempts(self, org: str, job_id: UUID) -> tuple[Sequence[Attempt], datetime | None]:
        """The attempts that did not complete, and when a remote last began to run the job."""
        rows = await sql.fetch(self._db, "org_jobs/attempts", org=org, job=job_id)
        spawned = next((row["spawned_at"] for row in rows if row["spawned_at"] is not None), None)
        return [_decode_attempt(row["data"]) for row in rows if row["data"] is not None], spawned

    async def log(
        self, org: str, job_id: UUID, *, after: int, limit: int
    ) -> tuple[Sequence[LogEntry], int | None]:
        """Log lines, alerts and ended attempts after the event numbered ``after``; and the number
        to continue after, if there may be more."""
        rows = await sql.fetch(
            self._db,
            "org_jobs/log",
            org=org,
            job=job_id,
            after=after,
            rows_max=_LOG_WALKED_MAX,
            limit=limit,
        )
        entries = [
            LogEntry(row["seq"], row["kind"], msgspec.json.decode(row["data"]), row["at"])
            for row in rows
            if row["seq"] is not None
        ]
        if len(entries) == limit:
            return entries, entries[-1].seq
        is_cut = rows[0]["walked_rows"] == _LOG_WALKED_MAX
        return entries, rows[0]["walked_to"] if is_cut else None

    async def input_of(self, org: str, job_id: UUID) -> bytes:
        """A job's payload. Raises InputNotKept."""
        payload: bytes | None = await sql.value(self._db, "org_jobs/input", org=org, job=job_id)
        if payload is None:
            raise InputNotKept(INPUT_GONE)
        return payload

    async def retry(
        self,
        job: OrgJob,
        *,
        idempotency_key: str | None,
        request_id: str | None,
        send: SendRetry | None = None,
    ) -> Ticket:
        """Retry ``job`` as a new job with the same input, or find the job that holds the key.

        ``send`` replaces the statement that creates it. Raises JobNotEnded or InputNotKept if the
        job cannot be retried, JobNotFound if it does not exist.
        """
        send = send or partial(retry, self._db, job.uuid)
        view, traceparent = job.view, tracing.current()
        new = NewJob(
            view.org,
            new_id(),
            view.lane.value,
            view.endpoint,
            view.queue_key,
            view.failures_max,
            b"",  # the statement takes it from the old row
            idempotency_key,
            None if idempotency_key is None else retry_fingerprint(job.uuid),
            request_id,
            None if traceparent is None else encode({"traceparent": traceparent}).decode(),
        )
        looked_for_key = False

        async def insert(jobs: Sequence[NewJob]) -> Mapping[UUID, State]:
            nonlocal looked_for_key
            (one,) = jobs
            try:
                answer = await send(one)
            except NotFound:
                if looked_for_key:
                    raise
            else:
                if answer is not None and answer.created:
                    return {one.uuid: State.QUEUED}
                if looked_for_key:
                    # No job holds the key, so the state of the old job is the obstacle.
                    _refuse(answer)
            looked_for_key = True
            return {}

        return await self._submitter.submit_apart(self._db, new, insert)

    async def _walk(
        self,
        way: str,
        job_filter: OrgJobFilter,
        asked: PageQuery,
        *,
        rows_max: int,
        limit: int,
    ) -> _Walked:
        """Matching jobs, newest first, passing at most ``rows_max`` jobs. ``way`` is the statement,
        which has its own index."""
        rows = await fetch_in_time(
            self._list_db,
            way,
            **job_filter.arguments(),
            **asked.arguments(),
            rows_max=rows_max,
            limit=limit,
        )
        found = [_job(tuple(row)[2:]) for row in rows if row["id"] is not None]
        return _Walked(found, rows[0]["walked_rows"], rows[0]["walked_to"])


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


def _job(row: Row | Sequence[Any]) -> OrgJob:
    values = tuple(row)
    run, index, *rest = values[_VIEW_COLUMNS:]
    task = None if run is None else Task(run, index)
    return OrgJob(read_view(values[:_VIEW_COLUMNS]), task, *rest)


INPUT_GONE: Final = (
    "The job's input is no longer kept. Inputs of completed jobs never are, nor are those of "
    "endpoints with `keep_input` off. Submit the input again."
)


def retry_fingerprint(job: UUID) -> bytes:
    """The fingerprint of a retry's idempotency key: it depends on the job that is retried."""
    return hashlib.blake2b(b"retry\0" + job.bytes, digest_size=16).digest()


def _refuse(old: Retried | None) -> None:
    if old is None:
        raise JobNotFound("there is no such job")
    if not old.state.terminal:
        raise JobNotEnded("The job has not ended. Only a failed or cancelled job can be retried.")
    raise InputNotKept(INPUT_GONE)


def _cut(found: Sequence[OrgJob], limit: int) -> OrgJobPage:
    """A page of ``limit`` jobs, from a search for one more than that."""
    if len(found) <= limit:
        return OrgJobPage(found, None)
    return OrgJobPage(found[:limit], found[limit - 1].uuid)
