"""Queries that create, read, cancel and list jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import asyncpg

from coatcheck.core.queries import copy_format, sql
from coatcheck.db.connection import Connection, RawConnection
from coatcheck.db.crashing import fetch_or_die
from coatcheck.domain.catalogue import UPSTREAM_ENDPOINT
from coatcheck.domain.errors import OutcomeUnknown
from coatcheck.domain.ids import newest_possible
from coatcheck.domain.job import Existing, JobKind, JobView, NewJob, PlainJob
from coatcheck.domain.lanes import Lane
from coatcheck.domain.limits import RESULT_INLINE_BYTES_MAX
from coatcheck.domain.states import State
from coatcheck.telemetry.queue_metrics import QueueWaiting

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
    rows = await fetch_or_die(
        db,
        "submit.inserted_not_committed",
        _submit_statement(jobs) if notification is None else sql("jobs/submit_and_notify"),
        *columns(_in_key_order(jobs)),
        *(notification or ()),
    )
    return created(rows)


def _submit_statement(jobs: Sequence[NewJob]) -> str:
    """The statement that also writes the jobs' webhooks, if any has some."""
    return sql("webhooks/submit" if any(job.has_webhooks for job in jobs) else "jobs/submit")


async def _submit_plain(
    db: Connection, jobs: Sequence[NewJob], notification: tuple[str, str] | None
) -> dict[UUID, State]:
    await fetch_or_die(
        db,
        "submit.inserted_not_committed",
        sql("jobs/submit_plain" if notification is None else "jobs/submit_plain_and_notify"),
        *_plain_columns(jobs),
        *(notification or ()),
        answers_rows=False,
    )
    return {job.uuid: State.QUEUED for job in jobs}


async def submit_atomically(
    db: Connection, jobs: Sequence[NewJob], rows_max: int
) -> dict[UUID, State]:
    """Create all of these jobs in one transaction."""
    jobs = _in_key_order(jobs)

    async def insert_all(connection: RawConnection) -> dict[UUID, State]:
        made: dict[UUID, State] = {}
        async with connection.transaction():
            for start in range(0, len(jobs), rows_max):
                made.update(await insert(connection, jobs[start : start + rows_max]))
        return made

    return await db.run(insert_all)


async def insert(connection: RawConnection, jobs: Sequence[NewJob]) -> dict[UUID, State]:
    """Create jobs in the caller's transaction. Returns the states of the new ones."""
    return created(await connection.fetch(_submit_statement(jobs), *columns(jobs)))


async def copy(
    db: Connection,
    jobs: Callable[[], Iterable[PlainJob]],
    ids: Sequence[bytes],
    created: Counter[JobKind],
) -> None:
    """Create plain jobs, with these ids, in one COPY: all or none.

    ``jobs`` yields the same jobs at every call; they are encoded while the server reads those
    before. ``created`` counts them by kind.
    """

    async def stream(connection: RawConnection) -> None:
        await connection.copy_to_table(
            "jobs",
            source=copy_format.encoded(jobs(), ids, created),
            columns=copy_format.COLUMNS,
            format="binary",
        )

    try:
        await db.run(stream)
    except asyncpg.UniqueViolationError:
        # The ids are ours alone: an earlier try, whose connection broke, had committed.
        return
    except OutcomeUnknown:
        # All or none, so the first row shows what became of all.
        kind, _, _ = next(iter(jobs()))
        if not await get(db, [(kind.org, UUID(bytes=ids[0]))]):
            raise


async def knows_key(db: Connection, org: str, idempotency_key: str) -> bool:
    """Whether a job of the organisation holds the key."""
    nobody = UUID(int=0)
    return bool(await db.fetch(sql("jobs/find_existing"), [org], [nobody], [idempotency_key]))


async def find(db: Connection, org: str, idempotency_key: str) -> JobView | None:
    """The job of the organisation that holds the key."""
    rows = await db.fetch(sql("jobs/find"), org, idempotency_key)
    return read_view(rows[0]) if rows else None


async def find_existing(db: Connection, jobs: Sequence[NewJob]) -> dict[int, Existing]:
    """The jobs that hold the ids or keys of these, by position."""
    rows = await db.fetch(
        sql("jobs/find_existing"),
        [job.org for job in jobs],
        [job.uuid for job in jobs],
        [job.idempotency_key for job in jobs],
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
    rows = await db.fetch(
        sql("jobs/get"),
        [org for org, _ in keys],
        [job_id for _, job_id in keys],
        result_bytes_max,
    )
    views = [read_view(row) for row in rows]
    return {(view.org, view.uuid): view for view in views}


async def result(db: Connection, org: str, job_id: UUID) -> bytes | None:
    """The whole result of a job; None if it has none or does not exist."""
    rows = await db.fetch(sql("jobs/result"), org, job_id)
    return rows[0]["result"] if rows else None


async def list_page(
    db: Connection,
    org: str,
    *,
    after: UUID | None,
    states: Sequence[State] | None,
    endpoint: str | None,
    lane: Lane | None,
    limit: int,
) -> list[JobView]:
    """An organisation's jobs, newest first, older than ``after``."""
    rows = await db.fetch(
        sql("lists/list"),
        org,
        after or newest_possible(),
        None if states is None else [state.value for state in states],
        endpoint,
        None if lane is None else lane.value,
        limit,
    )
    return [read_view(row) for row in rows]


class TookTooLong(Exception):
    """A list could not be read in time; another try would take as long."""


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which of an organisation's jobs a page shows. ``None`` does not narrow it."""

    org: str
    endpoints: Sequence[str] | None
    queue_key_prefix: str | None
    states: Sequence[State] | None
    lane: Lane | None
    owner: str | None

    def arguments(self) -> list[Any]:
        """The parameters $1 to $6."""
        return [
            self.org,
            self.endpoints,
            self.queue_key_prefix,
            None if self.states is None else [state.value for state in self.states],
            None if self.lane is None else self.lane.value,
            self.owner,
        ]

    @property
    def services(self) -> list[str] | None:
        """The services of these jobs, if the filter implies them: there is an index by service."""
        if self.endpoints is None:
            return None
        service_of_key, dot, _ = (self.queue_key_prefix or "").partition(".")
        services = {endpoint.partition(".")[0] for endpoint in self.endpoints}
        if UPSTREAM_ENDPOINT in self.endpoints:
            if not dot:
                return None
            services.add(service_of_key)
        return sorted(services)


async def page(
    db: Connection,
    job_filter: JobFilter,
    *,
    after: UUID | None,
    offset: int,
    limit: int,
    sparse: bool,
) -> list[JobView]:
    """Jobs, newest first, older than ``after``, without the first ``offset``.

    ``sparse`` looks for them by service, instead of among all jobs.
    """
    arguments = [*job_filter.arguments(), after if sparse else after or newest_possible()]
    if sparse:
        arguments += [job_filter.services, offset + limit]
    name = "lists/page_of_services" if sparse else "lists/page"
    rows = await fetch_in_time(db, name, *arguments, offset, limit)
    return [read_view(row) for row in rows]


async def page_total(db: Connection, job_filter: JobFilter, most: int, *, sparse: bool) -> int:
    """How many jobs match, counted up to ``most``."""
    if sparse:
        arguments = [*job_filter.arguments(), None, job_filter.services, most]
        rows = await fetch_in_time(db, "lists/page_of_services_total", *arguments)
    else:
        rows = await fetch_in_time(
            db, "lists/page_total", *job_filter.arguments(), most, newest_possible()
        )
    total: int = rows[0][0]
    return total


async def owners(db: Connection, org: str, services: Sequence[str], most: int) -> int:
    """How many owners have ended jobs of these services, counted up to ``most``."""
    rows = await fetch_in_time(db, "lists/owners", org, services, most)
    count: int = rows[0][0]
    return count


async def backlog(db: Connection, org: str, endpoints: Sequence[str], most: int) -> int:
    """How many jobs of these endpoints are queued, counted up to ``most``."""
    rows = await db.fetch(sql("jobs/backlog"), org, endpoints, most)
    waiting: int = rows[0][0]
    return waiting


async def org_backlog(db: Connection, org: str, most: int) -> int:
    """How many jobs of an organisation are queued, counted up to ``most``."""
    rows = await db.fetch(sql("jobs/org_backlog"), org, most)
    waiting: int = rows[0][0]
    return waiting


async def cancel(
    db: Connection, org: str, job_id: UUID, keep_seconds: int
) -> tuple[State, State, int | None] | None:
    """Cancel a job. Returns its state before and after, and the boot of its holder."""
    rows = await db.fetch(sql("jobs/cancel"), org, job_id, keep_seconds)
    if not rows:
        return None
    row = rows[0]
    return State(row["before"]), State(row["after"]), row["boot"]


async def depth(db: Connection) -> dict[tuple[Lane, State], int]:
    """How many live jobs there are, by lane and state."""
    return {(lane, state): jobs for lane, state, jobs, _ in await waiting(db)}


async def waiting(db: Connection) -> list[QueueWaiting]:
    """As ``depth``, with how long the oldest of each has been due."""
    rows = await db.fetch(sql("jobs/depth"))
    return [
        QueueWaiting(Lane(row["lane"]), State(row["state"]), row["jobs"], row["oldest_seconds"])
        for row in rows
    ]


async def fetch_in_time(db: Connection, statement: str, *arguments: Any) -> list[asyncpg.Record]:
    """Run a statement that the server cancels if it takes too long (see LISTING)."""
    try:
        return await db.fetch(sql(statement), *arguments)
    except asyncpg.QueryCanceledError as error:
        raise TookTooLong from error


def created(rows: Sequence[asyncpg.Record]) -> dict[UUID, State]:
    """The new jobs and their states, from the rows of ``submit``."""
    return {row["id"]: State.STAGED if row["staged"] else State.QUEUED for row in rows}


def _in_key_order(jobs: Sequence[NewJob]) -> Sequence[NewJob]:
    """The jobs in an order that all writers use. Statements that meet on several keys wait for each
    other's rows; in different orders they would deadlock."""
    if all(job.idempotency_key is None for job in jobs):
        return jobs
    return sorted(jobs, key=lambda job: (job.org, job.idempotency_key or ""))


def _plain_columns(jobs: Sequence[NewJob]) -> list[list[Any]]:
    return [
        [job.org for job in jobs],
        [job.uuid for job in jobs],
        [job.lane for job in jobs],
        [job.endpoint for job in jobs],
        [job.queue_key for job in jobs],
        [job.failures_max for job in jobs],
        [job.payload for job in jobs],
        _sparse([job.owner or None for job in jobs]),
        _sparse([job.request_id for job in jobs]),
    ]


def columns(jobs: Sequence[NewJob]) -> list[list[Any]]:
    """The parameters $1 to $12 of ``submit``."""
    *common, request_ids = _plain_columns(jobs)
    return [
        *common,
        _sparse([job.idempotency_key for job in jobs]),
        _sparse([job.fingerprint for job in jobs]),
        request_ids,
        _sparse([job.options for job in jobs]),
    ]


def _sparse(values: list[Any]) -> list[Any]:
    """The values, or nothing if all are NULL: unnest pads shorter arrays with NULLs."""
    return values if any(value is not None for value in values) else []


def read_view(row: asyncpg.Record | Sequence[Any]) -> JobView:
    """A job from the columns of ``view_columns`` and its result."""
    org, job_id, lane, endpoint, queue_key, state, *rest = row
    return JobView(org, job_id, Lane(lane), endpoint, queue_key, State(state), *rest)
