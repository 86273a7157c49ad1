"""Queries about work that a remote service does. Every write is fenced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

import asyncpg

from coatcheck.core.queries import sql
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


@dataclass(frozen=True, slots=True)
class ClaimedCall:
    """A call that this process claimed, and its job. ``state`` is None if the job was deleted;
    ``is_held`` says whether the job still waits for the call."""

    org: str
    job: UUID
    endpoint: str
    pace_key: str
    destination: bytes = field(repr=False)
    remote_id: str
    spawn: int
    lease: int
    polls: int
    faults: int
    state: State | None
    is_held: bool
    is_overdue: bool
    owner: str
    lane: str
    queue_key: str
    attempt: int
    failures: int
    unreachables: int
    request_id: str | None
    payload_bytes: int
    spawned_seconds: float
    ran_seconds: float
    usual_seconds: float | None
    spread_seconds: float | None
    looker: UUID

    def held(self) -> ClaimedJob:
        """Its job, for fenced writes."""
        return ClaimedJob(
            self.org,
            self.job,
            Lane(self.lane),
            self.endpoint,
            self.queue_key,
            b"",
            self.attempt,
            self.failures,
            self.unreachables,
            None,
            self.request_id,
            self.lease,
        )


@dataclass(frozen=True, slots=True)
class IdleCall:
    """A call that nobody needs any more."""

    org: str
    job: UUID
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


@dataclass(frozen=True, slots=True)
class FiledArtifact:
    """The file of a result."""

    name: str
    blob_key: str
    media_type: str
    size: int
    sha256: bytes


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


async def not_spawned(db: Connection, job: ClaimedJob) -> None:
    """Record that the remote certainly did not accept the work."""
    await sql.fetch(db, "remote_calls/not_spawned", org=job.org, job=job.uuid, lease=job.lease)


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
    ends = [row["org_id"] for row in rows if row["job_id"] is None]
    return [_claimed(row, looker) for row in rows if row["job_id"] is not None], (
        ends[0] if ends else FIRST
    )


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
        jobs=[each.call.job for each in calls],
        claimants=[each.call.looker for each in calls],
        check_seconds=[each.seconds for each in calls],
        faults=[min(each.faults, 32_767) for each in calls],
    )


async def renew(db: Connection, call: ClaimedCall, lease: int, seconds: float) -> bool:
    """Extend the claim of a call. False: another process has it by now."""
    rows = await sql.fetch(
        db,
        "remote_calls/renew",
        org=call.org,
        job=call.job,
        claimant=call.looker,
        lease=lease,
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
        job=call.job,
        lease=call.lease,
        claimant=call.looker,
        hold_seconds=seconds,
    )
    return rows[0]["lease"] if rows else None


async def complete(
    db: Connection,
    call: ClaimedCall,
    lease: int,
    result: bytes,
    artifact: FiledArtifact | None,
    keep_completed_seconds: int,
) -> bool:
    """Complete the job with its result and file. False: the caller no longer held it."""
    rows = await query_or_die(
        db,
        "remote.completed_not_committed",
        sql,
        "remote_calls/complete",
        org=call.org,
        job=call.job,
        lease=lease,
        result=result,
        keep_seconds=keep_completed_seconds,
        name=None if artifact is None else artifact.name,
        blob_key=None if artifact is None else artifact.blob_key,
        media_type=None if artifact is None else artifact.media_type,
        size=None if artifact is None else artifact.size,
        sha256=None if artifact is None else artifact.sha256,
    )
    return bool(rows)


async def drop(db: Connection, org: str, job: UUID, lease: int) -> None:
    """Delete a call that is over."""
    await sql.fetch(db, "remote_calls/drop", org=org, job=job, lease=lease)


async def idle(db: Connection, rows_max: int) -> list[IdleCall]:
    """Calls that nobody checks, of jobs that ended some other way or were deleted."""
    return [IdleCall(*row) for row in await sql.fetch(db, "remote_calls/idle", rows_max=rows_max)]


async def list_orphans(db: Connection, rows_max: int) -> list[ClaimedJob]:
    """Parked jobs without a call: the remote's id is lost."""
    return [
        _orphan(row) for row in await sql.fetch(db, "remote_calls/list_orphans", rows_max=rows_max)
    ]


async def find_orphan(db: Connection, org: str, job: UUID) -> ClaimedJob | None:
    """This job, if it is parked without a call."""
    rows = await sql.fetch(db, "remote_calls/find_orphan", org=org, job=job)
    return _orphan(rows[0]) if rows else None


async def delete_ended(db: Connection, org: str, job: UUID) -> None:
    """Delete a call that nobody checks and whose job has ended."""
    await sql.fetch(db, "remote_calls/delete_ended", org=org, job=job)


async def next_due_seconds(db: Connection) -> float | None:
    """Seconds until a call is due, below 0 if one is; None if there is none."""
    seconds: float | None = await sql.value(db, "remote_calls/next_due")
    return seconds


async def prune_durations(db: Connection) -> None:
    """Delete durations of work that nobody has submitted for a month."""
    await sql.fetch(db, "remote_calls/prune_durations")


async def is_open(db: Connection, org: str, job: UUID, spawn: int) -> bool:
    """Whether the job still waits for this spawn."""
    rows = await sql.fetch(db, "remote_calls/is_open", org=org, job=job, spawn=spawn)
    return bool(rows[0]["is_open"])


async def note_callback_id(db: Connection, org: str, job: UUID, spawn: int, remote_id: str) -> None:
    """Record the work's id, which a callback gave before the spawn's answer did."""
    await sql.fetch(
        db, "remote_calls/note_callback_id", org=org, job=job, spawn=spawn, remote_id=remote_id
    )


async def callback_key(db: Connection) -> tuple[UUID, bytes]:
    """The id of this database, and the key that signs its callback URLs."""
    rows = await sql.fetch(db, "remote_calls/callback_key")
    return rows[0]["id"], rows[0]["callback_key"]


def _claimed(row: asyncpg.Record, looker: UUID) -> ClaimedCall:
    return ClaimedCall(
        row["org_id"],
        row["job_id"],
        row["endpoint"],
        row["pace_key"],
        row["destination"],
        row["remote_id"],
        row["spawn"],
        row["lease"],
        row["polls"],
        row["faults"],
        None if row["state"] is None else State(row["state"]),
        row["is_held"],
        row["is_overdue"],
        row["owner"] or "",
        row["lane"] or Lane.STANDARD.value,
        row["flow"] or "",
        row["attempt"] or 1,
        row["failures"] or 0,
        row["unreachables"] or 0,
        row["request_id"],
        row["payload_bytes"],
        row["spawned_seconds"],
        row["ran_seconds"] or 0.0,
        row["usual_seconds"],
        row["spread_seconds"],
        looker,
    )


def _orphan(row: asyncpg.Record) -> ClaimedJob:
    return ClaimedJob(
        row["org_id"],
        row["id"],
        Lane(row["lane"]),
        row["endpoint"],
        row["flow"],
        b"",
        row["attempt"],
        row["failures"],
        row["unreachables"],
        None,
        row["request_id"],
        row["lease"],
    )
