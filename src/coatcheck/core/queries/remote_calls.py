"""Queries about work that a remote service does. Every write is fenced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import asyncpg

from coatcheck.core.queries import sql
from coatcheck.core.remote.result_store import StoredOutput
from coatcheck.db.connection import Connection
from coatcheck.db.queries import query_or_die
from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.lanes import Lane
from coatcheck.domain.states import State

FIRST: Final = ""
"""Where a round through the organisations starts."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A spawn that is about to be made. ``tries`` above 1: it may have been made before."""

    spawn: int
    tries: int
    callback_id: str | None


class ClaimedCall(ClaimedJob, kw_only=True, gc=False):
    """A call that this process claimed, and its job. ``state`` is None if the job was deleted;
    ``is_held`` says whether the job still waits for the call."""

    destination: bytes
    remote_id: str
    polls: int
    faults: int
    state: State | None
    is_held: bool
    is_overdue: bool
    owner: str
    spawned_seconds: float
    ran_seconds: float
    usual_seconds: float | None
    spread_seconds: float | None
    looker: UUID

    def __repr__(self) -> str:
        # Without the destination, which nobody but the caller may read.
        return f"<ClaimedCall {self.uuid} {self.endpoint} {self.remote_id}>"


@dataclass(frozen=True, slots=True)
class IdleCall:
    """A call that nobody needs any more."""

    org: str
    uuid: UUID
    endpoint: str
    destination: bytes = field(repr=False)
    owner: str
    is_completed: bool


@dataclass(frozen=True, slots=True)
class NextCheck:
    """When to check a claimed call again."""

    call: ClaimedCall
    seconds: float
    faults: int


async def begin(db: Connection, job: ClaimedJob, pace_key: str, destination: bytes) -> Begun | None:
    """Record that work is about to be spawned. None: the caller no longer holds the job."""
    rows = await sql.fetch(
        db,
        "remote_calls/begin",
        org=job.org,
        job=job.uuid,
        lease=job.lease,
        endpoint=job.endpoint,
        pace_key=pace_key,
        destination=destination,
    )
    return Begun(*rows[0]) if rows else None


async def park(
    db: Connection, job: ClaimedJob, remote_id: str, seconds: float, run_seconds: float | None
) -> bool:
    """Park a job whose work a remote does; the first check is due in ``seconds``, and the work may
    take ``run_seconds`` from now. False: the caller no longer held the job."""
    rows = await query_or_die(
        db,
        "remote.parked_not_committed",
        sql,
        "remote_calls/park",
        org=job.org,
        job=job.uuid,
        lease=job.lease,
        remote_id=remote_id,
        check_seconds=seconds,
        run_seconds=run_seconds,
    )
    return bool(rows)


async def claim_due(
    db: Connection,
    *,
    rows_max: int,
    per_org: int,
    seconds: float,
    orgs_max: int,
    after: str,
    looker: UUID,
    under_way: Mapping[str, int],
) -> tuple[list[ClaimedCall], str]:
    """Claim due calls, organisations taking turns. Also returns where the next round starts.

    ``under_way`` is how many calls of each organisation are already being checked.
    """
    rows = await sql.fetch(
        db,
        "remote_calls/claim_due",
        rows_max=rows_max,
        per_org=per_org,
        claim_seconds=seconds,
        orgs_max=orgs_max,
        after=after,
        claimant=looker,
        busy_orgs=list(under_way),
        busy_calls=list(under_way.values()),
    )
    ends = [row["org"] for row in rows if row["uuid"] is None]
    claimed = [_claimed(row, looker) for row in rows if row["uuid"] is not None]
    return claimed, ends[0] if ends else FIRST


async def claim_one(
    db: Connection, org: str, job: UUID, *, seconds: float, moment: float, looker: UUID
) -> ClaimedCall | None:
    """Claim a job's call. None if another process checks it or just did, or if there is none."""
    rows = await sql.fetch(
        db,
        "remote_calls/claim_one",
        org=org,
        job=job,
        claim_seconds=seconds,
        moment_seconds=moment,
        claimant=looker,
    )
    return _claimed(rows[0], looker) if rows else None


async def reschedule(db: Connection, calls: Sequence[NextCheck]) -> None:
    """Check these calls again later."""
    await sql.fetch(
        db,
        "remote_calls/reschedule",
        orgs=[each.call.org for each in calls],
        jobs=[each.call.uuid for each in calls],
        claimants=[each.call.looker for each in calls],
        check_seconds=[each.seconds for each in calls],
        faults=[min(each.faults, 32_767) for each in calls],
    )


async def renew(db: Connection, call: ClaimedCall, seconds: float) -> bool:
    """Extend the claim of a call. False: another process has it by now."""
    rows = await sql.fetch(
        db,
        "remote_calls/renew",
        org=call.org,
        job=call.uuid,
        claimant=call.looker,
        lease=call.lease,
        claim_seconds=seconds,
    )
    return bool(rows)


async def finalize(db: Connection, call: ClaimedCall, seconds: float) -> int | None:
    """Win the right to store a result, for ``seconds``. Returns the lease to use; None: another
    process has it, or the job is being cancelled."""
    rows = await query_or_die(
        db,
        "remote.finalizing_not_committed",
        sql,
        "remote_calls/finalize",
        org=call.org,
        job=call.uuid,
        lease=call.lease,
        claimant=call.looker,
        hold_seconds=seconds,
    )
    return rows[0]["lease"] if rows else None


async def complete(
    db: Connection, call: ClaimedCall, output: StoredOutput, keep_completed_seconds: int
) -> bool:
    """Complete the job with its result and file. False: the caller no longer held it."""
    artifact = output.artifact
    rows = await query_or_die(
        db,
        "remote.completed_not_committed",
        sql,
        "remote_calls/complete",
        org=call.org,
        job=call.uuid,
        lease=call.lease,
        result=output.result,
        keep_seconds=keep_completed_seconds,
        name=None if artifact is None else artifact.name,
        blob_key=None if artifact is None else artifact.blob_key,
        media_type=None if artifact is None else artifact.media_type,
        size=None if artifact is None else artifact.size,
        sha256=None if artifact is None else artifact.sha256,
    )
    return bool(rows)


async def list_orphans(db: Connection, rows_max: int) -> list[ClaimedJob]:
    """Parked jobs without a call: the remote's id is lost."""
    rows = await sql.fetch(db, "remote_calls/list_orphans", rows_max=rows_max)
    return [ClaimedJob(**_job_values(row)) for row in rows]


async def find_orphan(db: Connection, org: str, job: UUID) -> ClaimedJob | None:
    """This job, if it is parked without a call."""
    row = await sql.first(db, "remote_calls/find_orphan", org=org, job=job)
    return None if row is None else ClaimedJob(**_job_values(row))


def _claimed(row: asyncpg.Record, looker: UUID) -> ClaimedCall:
    values = _job_values(row)
    state = None if row["state"] is None else State(row["state"])
    return ClaimedCall(**{**values, "state": state, "looker": looker})


def _job_values(row: asyncpg.Record) -> dict[str, Any]:
    """The fields of a job that no worker holds, and what else the row has."""
    return {**row, "lane": Lane(row["lane"]), "payload": b"", "timeout_seconds": None}
