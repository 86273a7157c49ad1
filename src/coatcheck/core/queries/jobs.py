"""Jobs: create, read, cancel, list. One method a file of ``sql/jobs``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import asyncpg

from coatcheck.core.queries import copy_format
from coatcheck.core.sql import sql
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
"""For lists: each is planned for what was asked, and takes so many milliseconds at most."""


async def submit(
    db: Connection, jobs: Sequence[NewJob], tell: tuple[str, str] | None = None
) -> dict[UUID, State]:
    """Create jobs. The states of those created; the keys (or ids) of the others were taken.

    ``tell`` is a channel and what to say on it, to be sent with the commit: not with jobs that
    webhooks tell of.
    """
    if all(job.is_plain for job in jobs):
        try:
            return await _submit_plain(db, jobs, tell)
        except asyncpg.UniqueViolationError:
            pass  # an earlier try was committed and its answer lost: the statement below finds out
    rows = await fetch_or_die(
        db,
        "submit.inserted_not_committed",
        _submit_statement(jobs) if tell is None else sql("jobs/submit_and_tell"),
        *columns(_in_key_order(jobs)),
        *(tell or ()),
    )
    return created(rows)


def _submit_statement(jobs: Sequence[NewJob]) -> str:
    """The one that also notes who is to be told, if anybody is."""
    return sql("webhooks/submit" if any(job.is_told_of for job in jobs) else "jobs/submit")


async def _submit_plain(
    db: Connection, jobs: Sequence[NewJob], tell: tuple[str, str] | None
) -> dict[UUID, State]:
    await fetch_or_die(
        db,
        "submit.inserted_not_committed",
        sql("jobs/submit_plain" if tell is None else "jobs/submit_plain_and_tell"),
        *_plain_columns(jobs),
        *(tell or ()),
        answers_rows=False,
    )
    return {job.uuid: State.QUEUED for job in jobs}


async def submit_atomically(
    db: Connection, jobs: Sequence[NewJob], rows_max: int
) -> dict[UUID, State]:
    """Create all of these jobs in one transaction."""
    jobs = _in_key_order(jobs)

    async def insert(connection: RawConnection) -> dict[UUID, State]:
        made: dict[UUID, State] = {}
        async with connection.transaction():
            for start in range(0, len(jobs), rows_max):
                chunk = jobs[start : start + rows_max]
                rows = await connection.fetch(_submit_statement(chunk), *columns(chunk))
                made.update(created(rows))
        return made

    return await db.run(insert)


async def copy(
    db: Connection,
    jobs: Callable[[], Iterable[PlainJob]],
    ids: Sequence[bytes],
    created: Counter[JobKind],
) -> None:
    """Create plain jobs, by these ids, in one COPY: all of them or none.

    ``jobs`` gives them one by one, the same each time it is called: they are made while the server
    takes in those before. ``created`` is told how many there are of each kind.
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
        # The ids are ours alone: an earlier try, whose connection broke, was committed after all.
        return
    except OutcomeUnknown:
        # All or none, so the first row speaks for all.
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
    """The jobs under these (org, id) pairs; those that are not there are left out, and so are
    longer results."""
    rows = await db.fetch(
        sql("jobs/get"),
        [org for org, _ in keys],
        [job_id for _, job_id in keys],
        result_bytes_max,
    )
    views = [read_view(row) for row in rows]
    return {(view.org, view.uuid): view for view in views}


async def result(db: Connection, org: str, job_id: UUID) -> bytes | None:
    """The whole result of a job; None if it has none, or is gone."""
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
        sql("jobs/list"),
        org,
        after or newest_possible(),
        None if states is None else [state.value for state in states],
        endpoint,
        None if lane is None else lane.value,
        limit,
    )
    return [read_view(row) for row in rows]


class TookTooLong(Exception):
    """A list could not be read in time; trying again would take as long."""


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which of an organisation's jobs a page is about. ``None`` does not narrow it."""

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
        """The services whose jobs these are, if they can be told: there is an index by service."""
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
    wanted: JobFilter,
    *,
    after: UUID | None,
    offset: int,
    limit: int,
    sparse: bool,
) -> list[JobView]:
    """Jobs, newest first, older than ``after``, the first ``offset`` of them left out.

    ``sparse`` says to look for them by service, and not among all jobs there are.
    """
    arguments = [*wanted.arguments(), after if sparse else after or newest_possible()]
    if sparse:
        arguments += [wanted.services, offset + limit]
    name = "jobs/page_of_services" if sparse else "jobs/page"
    rows = await fetch_in_time(db, name, *arguments, offset, limit)
    return [read_view(row) for row in rows]


async def page_total(db: Connection, wanted: JobFilter, most: int, *, sparse: bool) -> int:
    """How many jobs there are, counting no further than ``most``."""
    if sparse:
        arguments = [*wanted.arguments(), None, wanted.services, most]
        rows = await fetch_in_time(db, "jobs/page_of_services_total", *arguments)
    else:
        rows = await fetch_in_time(
            db, "jobs/page_total", *wanted.arguments(), most, newest_possible()
        )
    total: int = rows[0][0]
    return total


async def owners(db: Connection, org: str, services: Sequence[str], most: int) -> int:
    """How many owners have ended jobs of these services, counting no further than ``most``."""
    rows = await fetch_in_time(db, "jobs/owners", org, services, most)
    count: int = rows[0][0]
    return count


async def backlog(db: Connection, org: str, endpoints: Sequence[str], most: int) -> int:
    """How many jobs of these endpoints wait in the queue, counting no further than ``most``."""
    rows = await db.fetch(sql("jobs/backlog"), org, endpoints, most)
    waiting: int = rows[0][0]
    return waiting


async def org_backlog(db: Connection, org: str, most: int) -> int:
    """How many jobs of an organisation wait in the queue, counting no further than ``most``."""
    rows = await db.fetch(sql("jobs/org_backlog"), org, most)
    waiting: int = rows[0][0]
    return waiting


async def cancel(
    db: Connection, org: str, job_id: UUID, keep_seconds: int
) -> tuple[State, State, int | None] | None:
    """Ask for a job's end. The state before, the state after, and the boot of its holder."""
    rows = await db.fetch(sql("jobs/cancel"), org, job_id, keep_seconds)
    if not rows:
        return None
    row = rows[0]
    return State(row["before"]), State(row["after"]), row["boot"]


async def depth(db: Connection) -> dict[tuple[Lane, State], int]:
    """How many live jobs there are, by lane and state."""
    return {(lane, state): jobs for lane, state, jobs, _ in await waiting(db)}


async def waiting(db: Connection) -> list[QueueWaiting]:
    """The same, with for how long the first of them has been due."""
    rows = await db.fetch(sql("jobs/depth"))
    return [
        QueueWaiting(Lane(row["lane"]), State(row["state"]), row["jobs"], row["oldest_seconds"])
        for row in rows
    ]


async def fetch_in_time(db: Connection, statement: str, *arguments: Any) -> list[asyncpg.Record]:
    """Run a statement that the server breaks off if it takes too long (see LISTING)."""
    try:
        return await db.fetch(sql(statement), *arguments)
    except asyncpg.QueryCanceledError as error:
        raise TookTooLong from error


def created(rows: Sequence[asyncpg.Record]) -> dict[UUID, State]:
    """What ``submit.sql`` answered: the jobs that were created, and their states."""
    return {row["id"]: State.STAGED if row["staged"] else State.QUEUED for row in rows}


def _in_key_order(jobs: Sequence[NewJob]) -> Sequence[NewJob]:
    """The jobs in an order that every writer keeps to. Two statements that meet on several keys
    wait for each other's rows; in orders of their own they would deadlock."""
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
    """The parameters $1 to $12 of ``submit.sql``."""
    *common, request_ids = _plain_columns(jobs)
    return [
        *common,
        _sparse([job.idempotency_key for job in jobs]),
        _sparse([job.fingerprint for job in jobs]),
        request_ids,
        _sparse([job.options for job in jobs]),
    ]


def _sparse(values: list[Any]) -> list[Any]:
    """The values, or nothing if all are NULL: unnest fills up what is short with NULLs."""
    return values if any(value is not None for value in values) else []


def read_view(row: asyncpg.Record | Sequence[Any]) -> JobView:
    """A job as ``view_columns.sql`` gives it, and its result."""
    org, job_id, lane, endpoint, queue_key, state, *rest = row
    return JobView(org, job_id, Lane(lane), endpoint, queue_key, State(state), *rest)
