"""Jobs: create, read, cancel, list. One method a file of ``sql/jobs``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any
from uuid import UUID

import asyncpg

from coatcheck.domain.errors import OutcomeUnknown
from coatcheck.domain.job import Existing, JobView, NewJob, PlainJob
from coatcheck.domain.lanes import Lane
from coatcheck.domain.states import State
from coatcheck.store import copy_format
from coatcheck.store.crashing import fetch_or_die
from coatcheck.store.line import Connection, Line
from coatcheck.store.sql import sql


async def submit(
    line: Line, jobs: Sequence[NewJob], tell: tuple[str, str] | None = None
) -> dict[UUID, State]:
    """Create jobs. The states of those created; the keys (or ids) of the others were taken.

    ``tell`` is a channel and what to say on it, to be sent with the commit.
    """
    if all(job.is_plain for job in jobs):
        try:
            return await _submit_plain(line, jobs, tell)
        except asyncpg.UniqueViolationError:
            pass  # an earlier try was committed and its answer lost: the statement below finds out
    rows = await fetch_or_die(
        line,
        "submit.inserted_not_committed",
        sql("jobs/submit" if tell is None else "jobs/submit_and_tell"),
        *_columns(_in_key_order(jobs)),
        *(tell or ()),
    )
    return _created(rows)


async def _submit_plain(
    line: Line, jobs: Sequence[NewJob], tell: tuple[str, str] | None
) -> dict[UUID, State]:
    await fetch_or_die(
        line,
        "submit.inserted_not_committed",
        sql("jobs/submit_plain" if tell is None else "jobs/submit_plain_and_tell"),
        *_plain_columns(jobs),
        *(tell or ()),
        answers_rows=False,
    )
    return {job.uuid: State.QUEUED for job in jobs}


async def submit_atomically(line: Line, jobs: Sequence[NewJob], rows_max: int) -> dict[UUID, State]:
    """Create all of these jobs in one transaction."""
    jobs = _in_key_order(jobs)

    async def insert(connection: Connection) -> dict[UUID, State]:
        created: dict[UUID, State] = {}
        async with connection.transaction():
            for start in range(0, len(jobs), rows_max):
                chunk = jobs[start : start + rows_max]
                rows = await connection.fetch(sql("jobs/submit"), *_columns(chunk))
                created.update(_created(rows))
        return created

    return await line.run(insert)


async def copy(line: Line, jobs: Callable[[], Iterable[PlainJob]], ids: Sequence[bytes]) -> None:
    """Create plain jobs, by these ids, in one COPY: all of them or none.

    ``jobs`` gives them one by one, the same each time it is called: they are made while the server
    takes in those before.
    """

    async def stream(connection: Connection) -> None:
        await connection.copy_to_table(
            "jobs",
            source=copy_format.encoded(jobs(), ids),
            columns=copy_format.COLUMNS,
            format="binary",
        )

    try:
        await line.run(stream)
    except asyncpg.UniqueViolationError:
        # The ids are ours alone: an earlier try, whose connection broke, was committed after all.
        return
    except OutcomeUnknown:
        # All or none, so the first row speaks for all.
        first = next(iter(jobs()))
        if not await get(line, [(first.kind.org, UUID(bytes=ids[0]))]):
            raise


async def find_existing(line: Line, jobs: Sequence[NewJob]) -> dict[int, Existing]:
    """The jobs that hold the ids or keys of these, by position."""
    rows = await line.fetch(
        sql("jobs/find_existing"),
        [job.org for job in jobs],
        [job.uuid for job in jobs],
        [job.idempotency_key for job in jobs],
    )
    return {
        row["position"] - 1: Existing(row["id"], State(row["state"]), row["fingerprint"])
        for row in rows
    }


async def get(line: Line, keys: Sequence[tuple[str, UUID]]) -> dict[tuple[str, UUID], JobView]:
    """The jobs under these (org, id) pairs; those that are not there are left out."""
    rows = await line.fetch(
        sql("jobs/get"), [org for org, _ in keys], [job_id for _, job_id in keys]
    )
    views = [_view(row) for row in rows]
    return {(view.org, view.uuid): view for view in views}


async def list_page(
    line: Line,
    org: str,
    *,
    after: UUID | None,
    states: Sequence[State] | None,
    endpoint: str | None,
    lane: Lane | None,
    limit: int,
) -> list[JobView]:
    """An organisation's jobs, newest first, older than ``after``."""
    rows = await line.fetch(
        sql("jobs/list"),
        org,
        after,
        None if states is None else [state.value for state in states],
        endpoint,
        None if lane is None else lane.value,
        limit,
    )
    return [_view(row) for row in rows]


async def cancel(
    line: Line, org: str, job_id: UUID, keep_seconds: int
) -> tuple[State, State, int | None] | None:
    """Ask for a job's end. The state before, the state after, and the boot of its holder."""
    rows = await line.fetch(sql("jobs/cancel"), org, job_id, keep_seconds)
    if not rows:
        return None
    row = rows[0]
    return State(row["before"]), State(row["after"]), row["boot"]


async def depth(line: Line) -> dict[tuple[Lane, State], int]:
    """How many live jobs there are, by lane and state."""
    rows = await line.fetch(sql("jobs/depth"))
    return {(Lane(row["lane"]), State(row["state"])): row["jobs"] for row in rows}


def _created(rows: Sequence[asyncpg.Record]) -> dict[UUID, State]:
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
        [job.flow for job in jobs],
        [job.failures_max for job in jobs],
        [job.payload for job in jobs],
        _sparse([job.request_id for job in jobs]),
    ]


def _columns(jobs: Sequence[NewJob]) -> list[list[Any]]:
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


def _view(row: asyncpg.Record) -> JobView:
    org, job_id, lane, endpoint, flow, state, *rest = row
    return JobView(org, job_id, Lane(lane), endpoint, flow, State(state), *rest)
