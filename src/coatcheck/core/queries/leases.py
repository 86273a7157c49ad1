"""The statements of workers: exchange, settle, start marks, heartbeats. Every write is fenced.

A lease is ``boot << 40 | claim number``. Each claim takes a fresh one; every write of a holder
names (org, id, lease) in its own statement and changes nothing if the lease has moved on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID, uuid4

import asyncpg
import msgspec

from coatcheck.core.queries import services, sql
from coatcheck.core.ready_notification import NamedJob
from coatcheck.db.connection import Connection, RawConnection
from coatcheck.db.errors import retried
from coatcheck.db.queries import fetch_or_die, query_or_die
from coatcheck.domain.bounds import Bound
from coatcheck.domain.catalogue import VersionSpec
from coatcheck.domain.claim_choice import ClaimRotation, QueuePosition
from coatcheck.domain.errors import DatabaseUnavailable
from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.lanes import Lane, LanePolicy
from coatcheck.domain.limits import QUEUES_SCANNED_MAX
from coatcheck.domain.states import State, TransitionEvent
from coatcheck.processes import ProcessIdentity

_encode: Final = msgspec.json.Encoder().encode

_LANES: Final = {lane.value: lane for lane in Lane}
_rank: Final = itemgetter(11)
Bound(
    "turns",
    of="organisations, and queues, that a claim looks at in a lane",
    over="claim",
    value=f"{QUEUES_SCANNED_MAX:,}",
    response="none: the next claim continues from there",
)


class FinishedJob(msgspec.Struct, gc=False):  # made by the thousand
    """A job whose handler returned, to be completed."""

    job: ClaimedJob
    result: bytes
    ran_seconds: float


@dataclass(slots=True)
class Settlement:
    """An attempt that did not complete, to be settled."""

    job: ClaimedJob
    event: TransitionEvent
    error_code: str | None
    error_message: str | None
    delay_seconds: float
    ran_seconds: float


class Settled(NamedTuple):
    """A job's new state, and the error that it shows now."""

    state: State
    error_code: str | None


@dataclass(slots=True)
class ClaimOrder:
    """A worker's request for jobs: room in each lane, the endpoints that it serves, a new lease.

    ``turns`` remembers where each lane's next claim continues; a claim moves it. ``holders`` is for
    a lane whose free slots are reserved for organisations that hold none: it names those that hold
    some, and each of the others gets one job. A claim sets ``look_again_seconds`` if it left jobs
    that wait only for time to pass, such as for a token of their rate: when to claim again. It sets
    ``was_locked_out`` if it found work and got none, because others had locked all of it.
    """

    lanes: list[str]
    room: list[int]
    endpoints: list[str]
    timeouts: list[float]
    lease: int
    turns: dict[str, ClaimRotation] = field(default_factory=dict)
    holders: Sequence[Collection[str] | None] = ()
    look_again_seconds: float | None = None
    was_locked_out: bool = False
    _sent: dict[str, dict[str, QueuePosition]] = field(default_factory=dict)

    def arguments(self, *, limited: bool) -> list[Any]:
        """The parameters of the scan for queues under a limit, or for the others and the lease."""
        holders = self.holders or [None] * len(self.lanes)
        after = []
        for lane, room, others in zip(self.lanes, self.room, holders, strict=True):
            turns = self._turns(lane, limited=limited)
            after.append(turns.after_org)
            # A claim that chooses lists all organisations, whatever the room.
            listed_max = QUEUES_SCANNED_MAX if limited else room
            holding = others or ()
            places = turns.next_places(listed_max + len(holding))
            self._sent[lane] = {org: at for org, at in places.items() if org not in holding}
        return [
            self.lanes,
            self.room,
            self.endpoints,
            self.timeouts,
            after,
            [_json(self._sent[lane] or None) for lane in self.lanes],
            [_json(None if each is None else dict.fromkeys(each, 1)) for each in holders],
            QUEUES_SCANNED_MAX,
            limited,
            *([] if limited else [self.lease]),
        ]

    def is_for_newcomers(self, lane: str) -> bool:
        """Whether only organisations that hold no slot may have the lane's room: one job each."""
        return bool(self.holders) and self.holders[self.lanes.index(lane)] is not None

    def has_room_in(self, lane: str) -> bool:
        """Whether it asks for jobs of the lane, of any organisation."""
        at = self.lanes.index(lane) if lane in self.lanes else None
        return at is not None and self.room[at] > 0 and not self.is_for_newcomers(lane)

    def move(
        self, ended: Iterable[tuple[str, str, str | None, str | None]], *, limited: bool
    ) -> None:
        """Remember where a claim ended: in each lane an organisation, and for organisations with
        several queues an endpoint and a queue key, as (lane, organisation, endpoint, key)."""
        after: dict[str, str] = {}
        places: dict[str, dict[str, QueuePosition]] = {}
        for lane, org, endpoint, key in ended:
            if endpoint is None or key is None:
                after[lane] = org
            else:
                places.setdefault(lane, {})[org] = QueuePosition(endpoint, key)
        for lane, sent in self._sent.items():
            self._turns(lane, limited=limited).move(sent, places.get(lane, {}), after.get(lane))

    def _turns(self, lane: str, *, limited: bool) -> ClaimRotation:
        """The rotation of a kind of claim: each kind skips the others' jobs, so it has its own."""
        kind = " limited" if limited else ""
        if self.is_for_newcomers(lane):
            kind += " newcomers"
        return self.turns.setdefault(f"{lane}{kind}", ClaimRotation())


async def exchange(
    db: Connection,
    order: ClaimOrder,
    completions: Sequence[FinishedJob],
    keep_completed_seconds: int,
    over: Sequence[int] = (),
) -> tuple[list[ClaimedJob], set[UUID]]:
    """Complete jobs, claim new ones, or do both by one statement, which is for few completions.
    Returns the jobs claimed, and the ids completed.

    ``over`` are leases that no job has any more, and of which nothing needs to be known.
    """
    if not any(order.room):
        return [], await complete(db, completions, keep_completed_seconds, over)
    asked = order.arguments(limited=False)
    if not completions and not over:
        rows = await fetch_or_die(db, "claim.updated_not_committed", sql("claims/claim"), *asked)
        return _claimed(order, rows), set()
    rows = await fetch_or_die(
        db,
        "finish.updated_not_committed",
        sql("claims/exchange"),
        *asked,
        *_completed(completions),
        keep_completed_seconds,
        over,
    )
    accepted = {row[1] for row in rows if row[2] is None and row[1] is not None}
    return _claimed(order, [row for row in rows if row[2] is not None or row[1] is None]), accepted


async def plan_exchange(db: Connection) -> None:
    """Have the server plan the statement of ``exchange`` for this connection: it takes 15 ms, for
    which no job should wait."""
    nothing = ClaimOrder([], [], [], [], lease=0)
    asked = nothing.arguments(limited=False)
    await db.fetch(sql("claims/exchange"), *asked, *_completed([]), 0, [])


async def complete(
    db: Connection,
    completions: Sequence[FinishedJob],
    keep_completed_seconds: int,
    over: Sequence[int] = (),
) -> set[UUID]:
    """Complete jobs. Returns the ids of those that were accepted."""
    rows = await fetch_or_die(
        db,
        "finish.updated_not_committed",
        sql("claims/complete"),
        *_completed(completions),
        keep_completed_seconds,
        over,
        answers_rows=False,
    )
    return {*(rows[0]["ids"] or ())} if rows else {done.job.uuid for done in completions}


def _completed(completions: Sequence[FinishedJob]) -> list[list[Any]]:
    """The parameters of a statement that completes jobs."""
    return [
        [done.job.org for done in completions],
        [done.job.uuid for done in completions],
        [done.job.lease for done in completions],
        [done.result for done in completions],
        [done.ran_seconds for done in completions],
        [len(done.job.payload) for done in completions],
    ]


def _claimed(order: ClaimOrder, rows: list[asyncpg.Record]) -> list[ClaimedJob]:
    """The jobs in the rows of a claim. Where it ended is noted in ``order``."""
    order.was_locked_out = bool(rows) and rows[-1][0] is None
    if order.was_locked_out:
        rows.pop()
    claimed = [row for row in rows if row[1] is not None]
    order.move([(row[2], row[0], row[3], row[4]) for row in rows if row[1] is None], limited=False)
    claimed.sort(key=_rank)
    return claimed_jobs(claimed, order.lease)


async def claim_named(
    db: Connection, named: NamedJob, timeout_seconds: float, lease: int
) -> tuple[list[ClaimedJob], bool]:
    """Claim the one job that a notification named. Returns it, or nothing; and whether it still
    waits, for a claim that looks at more than one job."""
    rows = await query_or_die(
        db,
        "claim.updated_not_committed",
        sql,
        "claims/claim_named",
        org=named.org,
        job=named.id,
        lane=named.lane,
        endpoint=named.endpoint,
        timeout=timeout_seconds,
        lease=lease,
    )
    claimed = [row for row in rows if row[1] is not None]
    return claimed_jobs(claimed, lease), len(claimed) < len(rows)


async def complete_and_notify(
    db: Connection,
    completions: Sequence[FinishedJob],
    keep_completed_seconds: int,
    over: Sequence[int],
    notification: tuple[str, str],
) -> set[UUID]:
    """Complete a few jobs and send a notification with the commit: a channel and a payload. Returns
    the ids completed."""
    rows = await fetch_or_die(
        db,
        "finish.updated_not_committed",
        sql("claims/complete_and_notify"),
        *_completed(completions),
        keep_completed_seconds,
        over,
        *notification,
    )
    return {row[0] for row in rows}


async def settle(
    db: Connection, settlements: Sequence[Settlement], keep_failed_seconds: int
) -> dict[UUID, Settled]:
    """Settle attempts that did not complete. Returns each job's new state; lost leases are left
    out."""
    rows = await sql.fetch(
        db,
        "claims/settle",
        orgs=[each.job.org for each in settlements],
        ids=[each.job.uuid for each in settlements],
        leases=[each.job.lease for each in settlements],
        events=[each.event.value for each in settlements],
        error_codes=[each.error_code for each in settlements],
        error_messages=[each.error_message for each in settlements],
        delay_seconds=[each.delay_seconds for each in settlements],
        ran_seconds=[each.ran_seconds for each in settlements],
        keep_seconds=keep_failed_seconds,
    )
    return {row["id"]: Settled(State(row["state"]), row["error_code"]) for row in rows}


async def settle_one(
    db: Connection, settlement: Settlement, keep_failed_seconds: int
) -> Settled | None:
    """Settle one attempt, and repeat that while PostgreSQL is unavailable. None if the lease is
    lost, or if an earlier try, whose answer was lost, settled it."""
    settled = await retried(lambda: settle(db, [settlement], keep_failed_seconds))
    return settled.get(settlement.job.uuid)


async def release_claim(db: Connection, lease: int, keep_failed_seconds: int) -> list[UUID]:
    """Release the jobs of a claim whose answer was lost. Returns their ids."""
    rows = await sql.fetch(
        db, "claims/release_claim", lease=lease, keep_seconds=keep_failed_seconds
    )
    return [row["id"] for row in rows]


async def mark_started(db: Connection, jobs: Sequence[tuple[ClaimedJob, float]]) -> set[UUID]:
    """Show jobs as processing. Returns the ids still held; the worker must stop the others."""
    rows = await sql.fetch(
        db,
        "claims/mark_started",
        orgs=[job.org for job, _ in jobs],
        ids=[job.uuid for job, _ in jobs],
        leases=[job.lease for job, _ in jobs],
        ran_seconds=[ran_seconds for _, ran_seconds in jobs],
    )
    return {row["id"] for row in rows}


@dataclass(frozen=True, slots=True)
class HeldJob:
    """A job that a worker holds, its lease, and whether it has started."""

    job_id: UUID
    lease: int
    begun: bool


async def held_jobs(db: Connection, boot: int) -> list[HeldJob]:
    """Every job that a worker holds. Raises DatabaseUnavailable if only a standby answers: it may
    not know the latest claims yet."""
    rows = await sql.fetch(db, "workers/held_jobs", boot=boot)
    if rows[0]["is_standby"]:
        raise DatabaseUnavailable("the server that answers does not accept writes")
    return [HeldJob(row["id"], row["lease"], row["begun"]) for row in rows if row["id"] is not None]


async def register(
    db: Connection,
    name: str,
    version: str,
    lanes: dict[Lane, LanePolicy],
    endpoints: Sequence[str] = (),
    published: Mapping[str, Sequence[VersionSpec]] | None = None,
    *,
    process: ProcessIdentity | None = None,
    temp_dir: Path | None = None,
) -> int:
    """Register a worker with its lease times, the endpoints that it serves and its process. Returns
    its boot number. Without a process, its death shows only by its silence.

    ``published`` is what its code declares, by service. The same commit puts it into the catalogue,
    where it stays while the worker lives.
    """
    identity = process or ProcessIdentity(uuid4())

    async def write(connection: RawConnection) -> int:
        async with connection.transaction():
            if published:
                await services.lock_published(connection)
            boot: int = await sql.value(
                connection,
                "workers/register",
                name=name,
                version=version,
                urgent_seconds=lanes[Lane.URGENT].ack_seconds,
                standard_seconds=lanes[Lane.STANDARD].ack_seconds,
                bulk_seconds=lanes[Lane.BULK].ack_seconds,
                endpoints=list(endpoints),
                lanes=[lane.value for lane, policy in lanes.items() if policy.concurrency > 0],
                slots=[policy.concurrency for policy in lanes.values() if policy.concurrency > 0],
                reserved=[policy.reserved for policy in lanes.values() if policy.concurrency > 0],
                process=identity.process,
                host=identity.host,
                pid=identity.pid,
                process_ticks=identity.ticks,
                temp_dir=None if temp_dir is None else str(temp_dir),
            )
            if published:
                await services.publish(connection, boot, published)
            return boot

    return await db.run(write)


@dataclass(frozen=True, slots=True)
class RegisteredWorker:
    """A worker that is not recorded as dead. ``temp_dir`` holds its isolated jobs' folders."""

    boot: int
    temp_dir: Path | None


async def workers_of_host(db: Connection, host: str) -> list[tuple[RegisteredWorker, int, int]]:
    """The workers of a host, each with its process id and the start time of that process."""
    return [
        (_registered(row), row["pid"], row["process_ticks"])
        for row in await sql.fetch(db, "workers/of_host", host=host)
    ]


async def workers_of_process(db: Connection, process: UUID) -> list[RegisteredWorker]:
    """The workers that ran in a process."""
    return [_registered(row) for row in await sql.fetch(db, "workers/of_process", process=process)]


async def declare_dead(db: Connection, boots: Sequence[int]) -> list[int]:
    """End the leases of workers that are proven dead, at once. Returns those that were not
    recorded as dead before."""
    return [row["boot"] for row in await sql.fetch(db, "workers/declare_dead", boots=list(boots))]


def _registered(row: asyncpg.Record) -> RegisteredWorker:
    folder: str | None = row["temp_dir"]
    return RegisteredWorker(row["boot"], None if folder is None else Path(folder))


async def newest_boot(db: Connection) -> int:
    """The boot number of the worker that registered last; 0 if none has."""
    boot: int = await sql.value(db, "workers/newest")
    return boot


class RegistrationGone(DatabaseUnavailable):
    """The worker's row was deleted, or the worker declared dead: its leases have ended."""


async def heartbeat(db: Connection, boot: int) -> list[UUID]:
    """Renew every lease of a worker. Returns the ids of its jobs to cancel."""
    rows = await sql.fetch(db, "workers/heartbeat", boot=boot)
    if not rows:
        raise RegistrationGone("this worker is no longer registered")
    asked: list[UUID] = rows[0]["cancel_requested"]
    return asked


async def set_held_threads(db: Connection, boot: int, threads: Mapping[str, int]) -> None:
    """Record the endpoints that a worker claims no jobs of, and how many threads block each."""
    await sql.fetch(
        db, "workers/set_held_threads", boot=boot, endpoints=[*threads], threads=[*threads.values()]
    )


async def deregister(db: Connection, boot: int) -> None:
    """Deregister a worker that stops. Its definitions are no longer in force where another live
    worker publishes a different one of the same endpoint."""

    async def write(connection: RawConnection) -> None:
        async with connection.transaction():
            await services.lock_published(connection)
            await sql.fetch(connection, "workers/deregister", boot=boot)
            await services.resolve(connection)

    await db.run(write)


def claimed_jobs(rows: Iterable[Iterable[Any]], lease: int) -> list[ClaimedJob]:
    """The jobs that rows of a claim statement describe, in the order of the rows."""
    claimed = []
    for row in rows:
        (
            org,
            uuid,
            lane,
            endpoint,
            queue_key,
            payload,
            attempt,
            failures,
            unreachables,
            timeout,
            req,
            _,
            traceparent,
            waited,
        ) = row
        claimed.append(
            ClaimedJob(
                org,
                uuid,
                _LANES[lane],
                endpoint,
                queue_key,
                payload,
                attempt,
                failures,
                unreachables,
                timeout,
                req,
                lease,
                traceparent,
                waited,
            )
        )
    return claimed


def _json(value: object) -> str | None:
    return None if value is None else _encode(value).decode()
