"""Queries that create, read, cancel and list jobs.

Rows of new jobs are sent in PostgreSQL's binary COPY format, in pieces small enough to overlap.
The driver can encode rows itself, but sends them half a megabyte at a time: the server waits while
a piece is made, and we wait while the server reads it. Pieces of 64 KiB keep both at work
(docs/adr/0010). The columns that a run of jobs has in common are encoded once.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

import asyncpg

from coatcheck.core.queries import queue, sql
from coatcheck.core.queries.queue import END, SIGNATURE, QueueName, copy_field
from coatcheck.db.connection import Connection, RawConnection
from coatcheck.db.errors import retried
from coatcheck.db.queries import in_transaction, query_or_die
from coatcheck.domain.bounds import Bound, CountedBound
from coatcheck.domain.errors import DatabaseUnavailable, OutcomeUnknown
from coatcheck.domain.job import Existing, JobKind, JobView, NewJob, PlainJob
from coatcheck.domain.lanes import Lane
from coatcheck.domain.limits import PAGE_RESULTS_BYTES_MAX, RESULT_INLINE_BYTES_MAX
from coatcheck.domain.listing import JobFilter, PageQuery
from coatcheck.domain.states import State
from coatcheck.telemetry.queue_metrics import QueueWaiting

COLUMNS: Final = (
    "org_id",
    "id",
    "lane",
    "endpoint",
    "flow",
    "failures_max",
    "owner",
    "payload",
    "request_id",
)

NULL: Final = struct.pack(">i", -1)
PIECE_BYTES: Final = 64 * 1024
_ROW_BYTES: Final = 100
"""The approximate size of a row without its payload."""
_length: Final = struct.Struct(">i").pack


async def encoded(
    jobs: Iterable[PlainJob], ids: Sequence[bytes], created: Counter[JobKind]
) -> AsyncIterator[bytes]:
    """Jobs with these ids as a COPY stream. ``created`` counts them by kind."""
    created.clear()
    piece = [SIGNATURE]
    size = 0
    kind_before: JobKind | None = None
    run = 0
    before = between = b""
    for (kind, payload, request_id), job_id in zip(jobs, ids, strict=True):
        if kind is not kind_before:
            if kind_before is not None:
                created[kind_before] += run
            before, between = _common(kind)
            kind_before = kind
            run = 0
        run += 1
        payload_size = len(payload)
        piece += (
            before,
            job_id,
            between,
            _length(payload_size),
            payload,
            NULL if request_id is None else copy_field(request_id.encode()),
        )
        size += payload_size + _ROW_BYTES
        if size >= PIECE_BYTES:
            yield b"".join(piece)
            piece = []
            size = 0
    if kind_before is not None:
        created[kind_before] += run
    piece.append(END)
    yield b"".join(piece)


def _common(kind: JobKind) -> tuple[bytes, bytes]:
    """The bytes before and after the id in every row of a kind."""
    before = struct.pack(">h", len(COLUMNS)) + copy_field(kind.org.encode()) + _length(16)
    between = b"".join(
        [
            copy_field(kind.lane.encode()),
            copy_field(kind.endpoint.encode()),
            copy_field(kind.queue_key.encode()),
            copy_field(struct.pack(">h", kind.failures_max)),
            copy_field(kind.owner.encode()),
        ]
    )
    return before, between


LISTING: Final = {
    "plan_cache_mode": "force_custom_plan",
    "enable_seqscan": "off",
    "jit": "off",
    "statement_timeout": "5000",
}
"""For lists: each is planned for its parameters, and takes at most this many milliseconds."""


async def submit(
    db: Connection, jobs: Sequence[NewJob], notification: tuple[str, str] | None = None
) -> dict[UUID, State]:
    """Create jobs. Returns the states of the new ones; the keys (or ids) of the others are taken.

    ``notification``: a channel and a payload, sent with the commit. Not for jobs with webhooks.
    """
    if all(job.is_plain for job in jobs):
        try:
            return await _submit_plain(db, jobs, notification)
        except asyncpg.UniqueViolationError:
            pass  # an earlier try was committed, and its answer lost: the statement below finds out
    rows = await query_or_die(
        db,
        "submit.inserted_not_committed",
        sql,
        _statement(jobs) if notification is None else "jobs/submit_and_notify",
        **arguments(_in_key_order(jobs)),
        **_notified(notification),
    )
    return created(rows)


def _statement(jobs: Sequence[NewJob]) -> str:
    """The statement that also writes the jobs' webhooks, if any has some."""
    return "webhooks/submit" if any(job.has_webhooks for job in jobs) else "jobs/submit"


def _notified(notification: tuple[str, str] | None) -> dict[str, Any]:
    if notification is None:
        return {}
    channel, text = notification
    return {"channel": channel, "notification": text}


async def _submit_plain(
    db: Connection, jobs: Sequence[NewJob], notification: tuple[str, str] | None
) -> dict[UUID, State]:
    statement, values = "jobs/submit_plain", _plain_arguments
    if notification is not None:
        statement = "jobs/submit_plain_and_notify"
        if len(jobs) == 1:
            statement, values = "jobs/submit_one_and_notify", _arguments_of_one
    await query_or_die(
        db,
        "submit.inserted_not_committed",
        sql,
        statement,
        answers_rows=False,
        **values(jobs),
        **_notified(notification),
    )
    return {job.uuid: State.QUEUED for job in jobs}


async def submit_atomically(
    db: Connection, jobs: Sequence[NewJob], rows_max: int
) -> dict[UUID, State]:
    """Create all of these jobs in one transaction."""
    jobs = _in_key_order(jobs)

    async def insert_all(connection: RawConnection) -> dict[UUID, State]:
        made: dict[UUID, State] = {}
        for start in range(0, len(jobs), rows_max):
            made.update(await insert(connection, jobs[start : start + rows_max]))
        return made

    return await in_transaction(db, insert_all)


async def insert(connection: RawConnection, jobs: Sequence[NewJob]) -> dict[UUID, State]:
    """Create jobs in the caller's transaction. Returns the states of the new ones."""
    return created(await sql.fetch(connection, _statement(jobs), **arguments(jobs)))


async def copy(
    db: Connection,
    jobs: Callable[[], Iterable[PlainJob]],
    ids: Sequence[bytes],
    created: Counter[JobKind],
) -> None:
    """Create plain jobs, with these ids, by COPY: all or none.

    ``jobs`` yields the same jobs at every call; they are encoded while the server reads those
    before. ``created`` counts them by kind.
    """

    async def stream(connection: RawConnection) -> None:
        async with connection.transaction():
            await connection.copy_to_table(
                "jobs",
                source=encoded(jobs(), ids, created),
                columns=COLUMNS,
                format="binary",
            )
            await queue.copy(connection, _queued(jobs(), ids))

    try:
        await retried(lambda: db.run(stream))
    except asyncpg.UniqueViolationError:
        # The ids are ours alone: an earlier try, whose connection broke, had committed.
        return
    except OutcomeUnknown:
        # All or none, so the first row shows what became of all.
        kind, _, _ = next(iter(jobs()))
        if not await get(db, [(kind.org, UUID(bytes=ids[0]))]):
            raise


def _queued(jobs: Iterable[PlainJob], ids: Sequence[bytes]) -> dict[QueueName, list[bytes]]:
    """The ids of each queue, in order."""
    queued: dict[QueueName, list[bytes]] = {}
    kind_before: JobKind | None = None
    ids_of_kind: list[bytes] = []
    for (kind, _, _), job_id in zip(jobs, ids, strict=True):
        if kind is not kind_before:
            name = QueueName(kind.org, kind.lane, kind.endpoint, kind.queue_key)
            ids_of_kind = queued.setdefault(name, [])
            kind_before = kind
        ids_of_kind.append(job_id)
    for each in queued.values():
        each.sort()
    return queued


async def knows_key(db: Connection, org: str, idempotency_key: str) -> bool:
    """Whether a job of the organisation holds the key."""
    nobody = UUID(int=0)
    return bool(
        await sql.fetch(
            db, "jobs/find_existing", orgs=[org], ids=[nobody], idempotency_keys=[idempotency_key]
        )
    )


async def find(db: Connection, org: str, idempotency_key: str) -> JobView | None:
    """The job of the organisation that holds the key."""
    rows = await sql.fetch(db, "jobs/find", org=org, idempotency_key=idempotency_key)
    return read_view(rows[0]) if rows else None


async def find_existing(db: Connection, jobs: Sequence[NewJob]) -> dict[int, Existing]:
    """The jobs that hold the ids or keys of these, by position."""
    rows = await sql.fetch(
        db,
        "jobs/find_existing",
        orgs=[job.org for job in jobs],
        ids=[job.uuid for job in jobs],
        idempotency_keys=[job.idempotency_key for job in jobs],
    )
    return {
        row["position"] - 1: Existing(row["id"], State(row["state"]), row["fingerprint"])
        for row in rows
    }


async def get(
    db: Connection,
    keys: Sequence[tuple[str, UUID]],
    result_bytes_max: int = RESULT_INLINE_BYTES_MAX,
) -> dict[tuple[str, UUID], JobView]:
    """The jobs of these (org, id) pairs. Jobs that do not exist are left out, and so are longer
    results."""
    rows = await sql.fetch(
        db,
        "jobs/get",
        orgs=[org for org, _ in keys],
        ids=[job_id for _, job_id in keys],
        result_bytes_max=result_bytes_max,
    )
    views = [read_view(row) for row in rows]
    return {(view.org, view.uuid): view for view in views}


async def result(db: Connection, org: str, job_id: UUID) -> bytes | None:
    """The whole result of a job; None if it has none or does not exist."""
    rows = await sql.fetch(db, "jobs/result", org=org, job=job_id)
    return rows[0]["result"] if rows else None


async def page(
    db: Connection, wanted: JobFilter, asked: PageQuery, *, offset: int, sparse: bool
) -> list[JobView]:
    """A page of jobs, without the first ``offset``. ``sparse`` looks for them by service, instead
    of among all jobs."""
    arguments = {**wanted.arguments(), **asked.arguments(), "offset": offset, "limit": asked.limit}
    if sparse:
        rows = await fetch_in_time(
            db,
            "lists/page_of_services",
            **arguments,
            services=wanted.services,
            rows_max=offset + asked.limit,
        )
    else:
        rows = await fetch_in_time(db, "lists/page", **arguments)
    return [read_view(row) for row in rows]


async def page_total(
    db: Connection, wanted: JobFilter, asked: PageQuery, most: int, *, sparse: bool
) -> int:
    """How many jobs the whole list has, counted up to ``most``."""
    arguments = {**wanted.arguments(), **asked.from_start().arguments(), "rows_max": most}
    if sparse:
        rows = await fetch_in_time(
            db, "lists/page_of_services_total", **arguments, services=wanted.services
        )
    else:
        rows = await fetch_in_time(db, "lists/page_total", **arguments)
    total: int = rows[0][0]
    return total


async def owners(db: Connection, org: str, services: Sequence[str], most: int) -> int:
    """How many owners have jobs of these services, counted up to ``most``."""
    rows = await fetch_in_time(db, "lists/owners", org=org, services=services, count_max=most)
    count: int = rows[0][0]
    return count


async def backlog(db: Connection, org: str, endpoints: Sequence[str], most: int) -> int:
    """How many jobs of these endpoints are queued, counted up to ``most``."""
    waiting: int = await sql.value(db, "jobs/backlog", org=org, endpoints=endpoints, count_max=most)
    return waiting


Bound(
    "page",
    of="results in pages (`batch-status`, tasks of a batch): one result, and all of a page",
    over="request",
    value=f"{RESULT_INLINE_BYTES_MAX // 1024} KiB, {PAGE_RESULTS_BYTES_MAX // 1024**2} MiB",
    response="omitted: `result_url` says where it is",
)
BACKLOG: Final = CountedBound(
    "backlog",
    of="jobs of an organisation that have not started; each task of a batch counts",
    over="deployment",
    value="none, or that of `coatcheck orgs limit --backlog`",
    response="429 `queue_full`, `Retry-After`; a list that cannot be counted at submission is "
    "ingested as far as there is room",
)


async def org_backlog(db: Connection, org: str, most: int) -> int:
    """How many jobs of an organisation are queued, counted up to ``most``."""
    waiting: int = await sql.value(db, "jobs/org_backlog", org=org, count_max=most)
    return waiting


class Cancellation(NamedTuple):
    """A job's state before and after a cancellation, and the boot of its holder.

    ``repeated``: an earlier try, whose answer was lost, may have cancelled it.
    """

    before: State
    after: State
    boot: int | None
    repeated: bool


async def cancel(db: Connection, org: str, job_id: UUID, keep_seconds: int) -> Cancellation | None:
    """Cancel a job; None if there is no such job."""
    tries = 0

    async def ask() -> asyncpg.Record | None:
        nonlocal tries
        tries += 1
        return await sql.first(db, "jobs/cancel", org=org, job=job_id, keep_seconds=keep_seconds)

    row = await retried(ask)
    if row is None:
        return None
    if row["may_be_named"]:
        await sql.fetch(db, "queue/forget", org=org, job=job_id)
    return Cancellation(State(row["before"]), State(row["after"]), row["boot"], tries > 1)


async def depth(db: Connection) -> dict[tuple[Lane, State], int]:
    """How many live jobs there are, by lane and state."""
    return {(lane, state): jobs for lane, state, jobs, _ in await waiting(db)}


async def waiting(db: Connection) -> list[QueueWaiting]:
    """As ``depth``, with how long the oldest of each has been due."""
    rows = await sql.fetch(db, "jobs/depth")
    return [
        QueueWaiting(Lane(row["lane"]), State(row["state"]), row["jobs"], row["oldest_seconds"])
        for row in rows
    ]


async def fetch_in_time(db: Connection, statement: str, **arguments: Any) -> list[asyncpg.Record]:
    """Run a statement that the server cancels if it takes too long (see LISTING). It is not
    repeated: another try would take as long."""
    try:
        return await sql.fetch(db, statement, **arguments)
    except asyncpg.QueryCanceledError as error:
        raise DatabaseUnavailable("the list took too long to read; narrow it") from error


def created(rows: Sequence[asyncpg.Record]) -> dict[UUID, State]:
    """The new jobs and their states, from the rows of ``submit``."""
    return {row["id"]: State.STAGED if row["staged"] else State.QUEUED for row in rows}


def _in_key_order(jobs: Sequence[NewJob]) -> Sequence[NewJob]:
    """The jobs in an order that all writers use. Statements that meet on several keys wait for each
    other's rows; in different orders they would deadlock."""
    if all(job.idempotency_key is None for job in jobs):
        return jobs
    return sorted(jobs, key=lambda job: (job.org, job.idempotency_key or ""))


def _plain_arguments(jobs: Sequence[NewJob]) -> dict[str, Any]:
    return {
        "orgs": [job.org for job in jobs],
        "ids": [job.uuid for job in jobs],
        "lanes": [job.lane for job in jobs],
        "endpoints": [job.endpoint for job in jobs],
        "flows": [job.queue_key for job in jobs],
        "failures_max": [job.failures_max for job in jobs],
        "payloads": [job.payload for job in jobs],
        "owners": _sparse([job.owner or None for job in jobs]),
        "request_ids": _sparse([job.request_id for job in jobs]),
    }


def _arguments_of_one(jobs: Sequence[NewJob]) -> dict[str, Any]:
    (job,) = jobs
    return {
        "org": job.org,
        "job": job.uuid,
        "lane": job.lane,
        "endpoint": job.endpoint,
        "flow": job.queue_key,
        "failures_max": job.failures_max,
        "payload": job.payload,
        "owner": job.owner,
        "request_id": job.request_id,
    }


def arguments(jobs: Sequence[NewJob]) -> dict[str, Any]:
    """The parameters of ``submit``, for statements that include it."""
    return {
        **_plain_arguments(jobs),
        "idempotency_keys": _sparse([job.idempotency_key for job in jobs]),
        "fingerprints": _sparse([job.fingerprint for job in jobs]),
        "options": _sparse([job.options for job in jobs]),
    }


def _sparse(values: list[Any]) -> list[Any]:
    """The values, or nothing if all are NULL: unnest pads shorter arrays with NULLs."""
    return values if any(value is not None for value in values) else []


def read_view(row: asyncpg.Record | Sequence[Any]) -> JobView:
    """A job from the columns of ``view_columns`` and its result."""
    org, job_id, lane, endpoint, queue_key, state, *rest = row
    return JobView(org, job_id, Lane(lane), endpoint, queue_key, State(state), *rest)
