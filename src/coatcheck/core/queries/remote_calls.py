"""Work that is done elsewhere. One method a file of ``sql/remote``; every write is fenced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import asyncpg

from coatcheck.core.sql import sql
from coatcheck.db.connection import Connection
from coatcheck.db.crashing import fetch_or_die
from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.lanes import Lane
from coatcheck.domain.states import State

FIRST: Final = ""
"""Where a round through the organisations begins."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A spawn that is about to be made. ``tries`` above 1: it may have been made before."""

    spawn: int
    tries: int
    told_id: str | None


@dataclass(frozen=True, slots=True)
class TakenCall:
    """A call that whoever took it has to look at, and its job. ``state`` is None if that is gone;
    ``is_held`` says whether the call is still what the job waits for."""

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
        """Its job, for the writes of whoever holds it."""
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
class PutBack:
    """When to look again at a call that was taken."""

    call: TakenCall
    seconds: float
    faults: int


@dataclass(frozen=True, slots=True)
class FiledArtifact:
    """The file that goes with a result."""

    name: str
    blob_key: str
    media_type: str
    size: int
    sha256: bytes


async def begin(db: Connection, job: ClaimedJob, pace_key: str, destination: bytes) -> Begun | None:
    """Say that work is about to be spawned. None: the job is no longer this holder's."""
    rows = await db.fetch(
        sql("remote_calls/begin"), job.org, job.uuid, job.lease, job.endpoint, pace_key, destination
    )
    return Begun(*rows[0]) if rows else None


async def not_spawned(db: Connection, job: ClaimedJob) -> None:
    """It is certain that nobody took the work."""
    await db.fetch(sql("remote_calls/not_spawned"), job.org, job.uuid, job.lease)


async def park(
    db: Connection, job: ClaimedJob, remote_id: str, seconds: float, run_seconds: float | None
) -> bool:
    """Let go of a job whose work goes on elsewhere, and is looked at in ``seconds``. It may take
    ``run_seconds`` from now. False: it was no longer this holder's."""
    rows = await fetch_or_die(
        db,
        "remote.parked_not_committed",
        sql("remote_calls/park"),
        job.org,
        job.uuid,
        job.lease,
        remote_id,
        seconds,
        run_seconds,
    )
    return bool(rows)


async def take(
    db: Connection,
    *,
    rows_max: int,
    per_org: int,
    seconds: float,
    orgs_max: int,
    after: str,
    looker: UUID,
    under_way: Mapping[str, int],
) -> tuple[list[TakenCall], str]:
    """Calls that are due, by turns of their organisations, and where the next round goes on.

    ``under_way`` is how many of each organisation's are being looked at already.
    """
    rows = await db.fetch(
        sql("remote_calls/take"),
        rows_max,
        per_org,
        seconds,
        orgs_max,
        after,
        looker,
        list(under_way),
        list(under_way.values()),
    )
    ends = [row["org_id"] for row in rows if row["job_id"] is None]
    return [_taken(row, looker) for row in rows if row["job_id"] is not None], (
        ends[0] if ends else FIRST
    )


async def take_one(
    db: Connection, org: str, job: UUID, *, seconds: float, moment: float, looker: UUID
) -> TakenCall | None:
    """A job's call, unless somebody looks at it, or just did; None, too, if it has none."""
    rows = await db.fetch(sql("remote_calls/take_one"), org, job, seconds, moment, looker)
    return _taken(rows[0], looker) if rows else None


async def put_back(db: Connection, calls: Sequence[PutBack]) -> None:
    """Look at these again later."""
    await db.fetch(
        sql("remote_calls/put_back"),
        [each.call.org for each in calls],
        [each.call.job for each in calls],
        [each.call.looker for each in calls],
        [each.seconds for each in calls],
        [min(each.faults, 32_767) for each in calls],
    )


async def renew(db: Connection, call: TakenCall, lease: int, seconds: float) -> bool:
    """Keep a call that takes longer. False: it is somebody else's by now."""
    rows = await db.fetch(
        sql("remote_calls/renew"), call.org, call.job, call.looker, lease, seconds
    )
    return bool(rows)


async def finalize(db: Connection, call: TakenCall, seconds: float) -> int | None:
    """Win the right to store a result, for so long. The lease to do it under; None: another has
    it, or the job is to be cancelled."""
    rows = await fetch_or_die(
        db,
        "remote.finalizing_not_committed",
        sql("remote_calls/finalize"),
        call.org,
        call.job,
        call.lease,
        call.looker,
        seconds,
    )
    return rows[0]["lease"] if rows else None


async def complete(
    db: Connection,
    call: TakenCall,
    lease: int,
    result: bytes,
    artifact: FiledArtifact | None,
    keep_completed_seconds: int,
) -> bool:
    """End the job with its result and its file. False: it was no longer this holder's to end."""
    filed: list[Any] = [None] * 5
    if artifact is not None:
        filed = [
            artifact.name,
            artifact.blob_key,
            artifact.media_type,
            artifact.size,
            artifact.sha256,
        ]
    rows = await fetch_or_die(
        db,
        "remote.completed_not_committed",
        sql("remote_calls/complete"),
        call.org,
        call.job,
        lease,
        result,
        keep_completed_seconds,
        *filed,
    )
    return bool(rows)


async def drop(db: Connection, org: str, job: UUID, lease: int) -> None:
    """Forget a call that is over."""
    await db.fetch(sql("remote_calls/drop"), org, job, lease)


async def idle(db: Connection, rows_max: int) -> list[IdleCall]:
    """Calls that nobody looks at, of jobs that have ended otherwise or are gone."""
    return [IdleCall(*row) for row in await db.fetch(sql("remote_calls/idle"), rows_max)]


async def strays(db: Connection, rows_max: int) -> list[ClaimedJob]:
    """Jobs that are parked, and of whose work nothing is known."""
    return [_stray(row) for row in await db.fetch(sql("remote_calls/strays"), rows_max)]


async def stray(db: Connection, org: str, job: UUID) -> ClaimedJob | None:
    """This job, if it is such."""
    rows = await db.fetch(sql("remote_calls/stray_one"), org, job)
    return _stray(rows[0]) if rows else None


async def forget(db: Connection, org: str, job: UUID) -> None:
    """Forget such a call."""
    await db.fetch(sql("remote_calls/forget"), org, job)


async def next_due_seconds(db: Connection) -> float | None:
    """Seconds until a call is due, below 0 if one is; None if there is none."""
    rows = await db.fetch(sql("remote_calls/next_due"))
    seconds: float | None = rows[0]["seconds"]
    return seconds


async def forget_paces(db: Connection) -> None:
    """Forget how long work takes that nobody hands in any more."""
    await db.fetch(sql("remote_calls/forget_paces"))


async def is_open(db: Connection, org: str, job: UUID, spawn: int) -> bool:
    """Whether a spawn is still waited for."""
    rows = await db.fetch(sql("remote_calls/is_open"), org, job, spawn)
    return bool(rows[0]["is_open"])


async def note_told_id(db: Connection, org: str, job: UUID, spawn: int, remote_id: str) -> None:
    """A callback says what the work is called, before we know."""
    await db.fetch(sql("remote_calls/told_id"), org, job, spawn, remote_id)


async def callback_key(db: Connection) -> tuple[UUID, bytes]:
    """Which database this is, and what its callbacks are signed with."""
    rows = await db.fetch(sql("remote_calls/callback_key"))
    return rows[0]["id"], rows[0]["callback_key"]


def _taken(row: asyncpg.Record, looker: UUID) -> TakenCall:
    return TakenCall(
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


def _stray(row: asyncpg.Record) -> ClaimedJob:
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
