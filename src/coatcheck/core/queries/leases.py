"""What a worker writes: exchange, settle, start marks, heartbeats. Every write is fenced.

A lease is ``boot << 40 | claim number``. Each claim takes a fresh one; every write of a holder
names (org, id, lease) in its own statement and changes nothing if the lease has moved on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID, uuid4

import asyncpg
import msgspec

from coatcheck.core.queries import services
from coatcheck.core.sql import sql
from coatcheck.crash import crash_point
from coatcheck.db.connection import Connection, RawConnection
from coatcheck.db.crashing import fetch_or_die
from coatcheck.domain.catalogue import VersionSpec
from coatcheck.domain.claim_order import ClaimRotation, QueuePosition
from coatcheck.domain.errors import DatabaseUnavailable
from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.lanes import Lane, LanePolicy
from coatcheck.domain.limits import QUEUES_SCANNED_MAX, RATE_BURST_SECONDS, RUN_QUEUES_SCANNED_MAX
from coatcheck.domain.states import State, TransitionEvent
from coatcheck.processes.identity import ProcessIdentity

LIMITED_CLAIM_LOCK: Final = 0x436F_6174_4C69  # "CoatLi"
_encode: Final = msgspec.json.Encoder().encode

Cursor = tuple[str, str]
"""Where a scan of another claim for work ended: an endpoint, and a flow of it as its org and its
name, with a NUL between, which neither can contain."""

_LANES: Final = {lane.value: lane for lane in Lane}


@dataclass(slots=True)
class FinishedJob:
    """A job whose handler returned, to be handed in."""

    job: ClaimedJob
    result: bytes
    ran_seconds: float


@dataclass(slots=True)
class Settlement:
    """An attempt that ended otherwise, to be handed in."""

    job: ClaimedJob
    event: TransitionEvent
    error_code: str | None
    error_message: str | None
    delay_seconds: float
    ran_seconds: float


class Settled(NamedTuple):
    """What a job went to, and the error that it shows now."""

    state: State
    error_code: str | None


@dataclass(slots=True)
class ClaimOrder:
    """What a worker asks for: room in each lane, the endpoints it serves, and a fresh lease.

    ``turns`` is the worker's memory of where each lane's claims go on, which a claim moves;
    ``cursors`` is that of claims that are not the engine's own. ``holders`` has, for a lane whose
    room is kept for organisations that hold none of its slots, those that do: each of the others is
    given one job. ``look_again_seconds`` is set by a claim that left work which is waiting only for
    time to pass, such as for a token of its rate: when to claim again.
    """

    lanes: list[str]
    room: list[int]
    endpoints: list[str]
    timeouts: list[float]
    lease: int
    cursors: dict[str, Cursor]
    turns: dict[str, ClaimRotation] = field(default_factory=dict)
    holders: Sequence[Collection[str] | None] = ()
    look_again_seconds: float | None = None
    _sent: dict[str, dict[str, QueuePosition]] = field(default_factory=dict)

    def arguments(self, *, limited: bool) -> list[Any]:
        """The parameters of a claim: $1 to $10, and those of flows under a limit have two more."""
        holders = self.holders or [None] * len(self.lanes)
        after = []
        for lane, room, others in zip(self.lanes, self.room, holders, strict=True):
            turns = self._turns(lane, limited=limited)
            after.append(turns.after_org)
            # Of claims under limits, all come to be listed, whatever room there is.
            listed_max = QUEUES_SCANNED_MAX if limited else room
            holding = others or ()
            places = turns.next_places(listed_max + len(holding))
            self._sent[lane] = {org: at for org, at in places.items() if org not in holding}
        return [
            self.lanes,
            self.room,
            self.endpoints,
            self.timeouts,
            self.lease,
            after,
            [_json(self._sent[lane] or None) for lane in self.lanes],
            [_json(None if each is None else dict.fromkeys(each, 1)) for each in holders],
            QUEUES_SCANNED_MAX,
            limited,
            *([RATE_BURST_SECONDS, RUN_QUEUES_SCANNED_MAX] if limited else []),
        ]

    def move(self, ended: Sequence[asyncpg.Record], *, limited: bool) -> None:
        """Remember where a claim ended: rows of (org, no id, lane, endpoint, flow)."""
        after: dict[str, str] = {}
        places: dict[str, dict[str, QueuePosition]] = {}
        for row in ended:
            org, lane, endpoint = row[0], row[2], row[3]
            if endpoint is None:
                after[lane] = org
            else:
                places.setdefault(lane, {})[org] = QueuePosition(endpoint, row[4])
        for lane, sent in self._sent.items():
            self._turns(lane, limited=limited).move(sent, places.get(lane, {}), after.get(lane))

    def _turns(self, lane: str, *, limited: bool) -> ClaimRotation:
        """Each kind of claim passes over the others' work, and so remembers a place of its own."""
        at = self.lanes.index(lane)
        kind = " limited" if limited else ""
        if self.holders and self.holders[at] is not None:
            kind += " newcomers"
        return self.turns.setdefault(f"{lane}{kind}", ClaimRotation())


async def exchange(
    db: Connection,
    order: ClaimOrder,
    completions: Sequence[FinishedJob],
    keep_completed_seconds: int,
) -> tuple[list[ClaimedJob], set[UUID]]:
    """Hand in completions and take out work. The jobs claimed, and the ids accepted."""
    point = "finish.updated_not_committed" if completions else "claim.updated_not_committed"
    rows = await fetch_or_die(
        db,
        point,
        sql("jobs/exchange"),
        *order.arguments(limited=False),
        [done.job.org for done in completions],
        [done.job.uuid for done in completions],
        [done.job.lease for done in completions],
        [done.result for done in completions],
        [done.ran_seconds for done in completions],
        [len(done.job.payload) for done in completions],
        keep_completed_seconds,
    )
    accepted = {row[1] for row in rows if row[2] is None}
    claimed = [row for row in rows if row[2] is not None]
    return _claimed(claimed, order, limited=False), accepted


async def claim_limited(db: Connection, order: ClaimOrder) -> list[ClaimedJob]:
    """Take out work of flows under a limit, never more than the limits leave."""

    async def claim(connection: RawConnection) -> list[asyncpg.Record]:
        async with connection.transaction():
            await connection.execute(sql("limits/lock_limits"), LIMITED_CLAIM_LOCK)
            rows = await connection.fetch(sql("jobs/claim_limited"), *order.arguments(limited=True))
            if any(row[1] is not None for row in rows):
                crash_point("claim.limited_not_committed")
            return rows

    rows = await db.run(claim)
    order.look_again_seconds = next((row[9] for row in rows if row[2] is None), None)
    return _claimed([row for row in rows if row[2] is not None], order, limited=True)


async def settle(
    db: Connection, settlements: Sequence[Settlement], keep_failed_seconds: int
) -> dict[UUID, Settled]:
    """End attempts that did not complete. What each job went to; a lost lease is left out."""
    rows = await db.fetch(
        sql("jobs/settle"),
        [each.job.org for each in settlements],
        [each.job.uuid for each in settlements],
        [each.job.lease for each in settlements],
        [each.event.value for each in settlements],
        [each.error_code for each in settlements],
        [each.error_message for each in settlements],
        [each.delay_seconds for each in settlements],
        [each.ran_seconds for each in settlements],
        keep_failed_seconds,
    )
    return {row["id"]: Settled(State(row["state"]), row["error_code"]) for row in rows}


async def release_claim(db: Connection, lease: int, keep_failed_seconds: int) -> list[UUID]:
    """Give back the jobs of a claim whose answer was lost. Their ids."""
    rows = await db.fetch(sql("jobs/release_claim"), lease, keep_failed_seconds)
    return [row["id"] for row in rows]


async def mark_started(db: Connection, jobs: Sequence[tuple[ClaimedJob, float]]) -> set[UUID]:
    """Show jobs as processing. The ids still held: what is missing was taken from this worker."""
    rows = await db.fetch(
        sql("jobs/mark_started"),
        [job.org for job, _ in jobs],
        [job.uuid for job, _ in jobs],
        [job.lease for job, _ in jobs],
        [ran_seconds for _, ran_seconds in jobs],
    )
    return {row["id"] for row in rows}


@dataclass(frozen=True, slots=True)
class HeldJob:
    """A job that a worker holds, the lease under which it does, and whether it has begun."""

    job_id: UUID
    lease: int
    begun: bool


async def holdings(db: Connection, boot: int) -> list[HeldJob]:
    """Every job that a worker holds. Raises DatabaseUnavailable where only a standby can be asked:
    it may not know yet of what the worker claimed."""
    rows = await db.fetch(sql("workers/holdings"), boot)
    if rows[0]["is_standby"]:
        raise DatabaseUnavailable("the server that answers takes no writes")
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
    """Announce a worker, its lease times, what it serves and the process that it runs in. Its boot
    number. Without a process only its silence can tell that it is gone.

    ``published`` is what its code declares, by service: it is in the catalogue from the same commit
    on, and for as long as the worker lives.
    """
    identity = process or ProcessIdentity(uuid4())

    async def write(connection: RawConnection) -> int:
        async with connection.transaction():
            if published:
                await services.lock_published(connection)
            boot: int = await connection.fetchval(
                sql("workers/register"),
                name,
                version,
                lanes[Lane.URGENT].ack_seconds,
                lanes[Lane.STANDARD].ack_seconds,
                lanes[Lane.BULK].ack_seconds,
                list(endpoints),
                [lane.value for lane, policy in lanes.items() if policy.concurrency > 0],
                [policy.concurrency for policy in lanes.values() if policy.concurrency > 0],
                [policy.reserved for policy in lanes.values() if policy.concurrency > 0],
                identity.process,
                identity.host,
                identity.pid,
                identity.ticks,
                None if temp_dir is None else str(temp_dir),
            )
            if published:
                await services.publish(connection, boot, published)
            return boot

    return await db.run(write)


@dataclass(frozen=True, slots=True)
class RegisteredWorker:
    """A worker that nobody has said is dead. ``temp_dir`` holds its isolated jobs' folders."""

    boot: int
    temp_dir: Path | None


async def workers_of_host(db: Connection, host: str) -> list[tuple[RegisteredWorker, int, int]]:
    """The workers of a host: each with the number of its process, and when that started."""
    return [
        (_registered(row), row["pid"], row["process_ticks"])
        for row in await db.fetch(sql("workers/of_host"), host)
    ]


async def workers_of_process(db: Connection, process: UUID) -> list[RegisteredWorker]:
    """The workers that ran in a process."""
    return [_registered(row) for row in await db.fetch(sql("workers/of_process"), process)]


async def declare_dead(db: Connection, boots: Sequence[int]) -> list[int]:
    """End the leases of workers that are proven dead, now. Those that were not known to be."""
    return [row["boot"] for row in await db.fetch(sql("workers/declare_dead"), list(boots))]


def _registered(row: asyncpg.Record) -> RegisteredWorker:
    folder: str | None = row["temp_dir"]
    return RegisteredWorker(row["boot"], None if folder is None else Path(folder))


async def newest_boot(db: Connection) -> int:
    """The boot number of the worker that registered last; 0 if none has."""
    boot: int = (await db.fetch(sql("workers/newest")))[0]["boot"]
    return boot


class RegistrationGone(DatabaseUnavailable):
    """The worker's row is gone, or it was said to be dead: its leases have ended."""


async def heartbeat(db: Connection, boot: int) -> list[UUID]:
    """Renew every lease of a worker. The ids of its jobs that are to be cancelled."""
    rows = await db.fetch(sql("workers/heartbeat"), boot)
    if not rows:
        raise RegistrationGone("this worker's registration is gone")
    asked: list[UUID] = rows[0]["cancel_requested"]
    return asked


async def tell_of_held_threads(db: Connection, boot: int, threads: Mapping[str, int]) -> None:
    """Say of which endpoints a worker claims no jobs now, and for how many threads that is."""
    await db.fetch(sql("workers/tell_of_held_threads"), boot, [*threads], [*threads.values()])


async def deregister(db: Connection, boot: int) -> None:
    """End a worker process in good order. What it published is no longer in force, where another
    live worker publishes the same endpoint otherwise."""

    async def write(connection: RawConnection) -> None:
        async with connection.transaction():
            await services.lock_published(connection)
            await connection.execute(sql("workers/deregister"), boot)
            await services.resolve(connection)

    await db.run(write)


def _claimed(rows: list[asyncpg.Record], order: ClaimOrder, *, limited: bool) -> list[ClaimedJob]:
    """The jobs of a claim, first turn first; the order remembers where it ended."""
    lease = order.lease
    order.move([row for row in rows if row[1] is None], limited=limited)
    rows = [row for row in rows if row[1] is not None]
    rows.sort(key=_rank)
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


def _rank(row: asyncpg.Record) -> int:
    rank: int = row[11]
    return rank


def _json(value: object) -> str | None:
    return None if value is None else _encode(value).decode()
