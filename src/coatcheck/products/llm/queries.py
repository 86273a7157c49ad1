"""The llm product's SQL: claims for targets, the state of targets, and abandoned chats.

A claim reads the queues, chooses in Python (``model_scheduler.py``) and claims what was chosen, in
one transaction under a lock. llm jobs take seconds; this takes milliseconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final
from uuid import UUID

import asyncpg
import msgspec

from coatcheck.core.queries import sql as core_sql
from coatcheck.core.queries.leases import ClaimOrder, Cursor
from coatcheck.db.connection import Connection, RawConnection
from coatcheck.db.queries import Queries
from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.lanes import Lane
from coatcheck.domain.limits import ERROR_MESSAGE_CHARACTERS_MAX, QUEUES_SCANNED_MAX
from coatcheck.domain.states import State
from coatcheck.products.llm.model import LLM_ENDPOINTS
from coatcheck.products.llm.model_scheduler import (
    ModelQueue,
    ScheduleChoice,
    TargetLoad,
    TargetTurn,
    choose,
)

sql: Final = Queries("coatcheck.products.llm", "queries")
_JOBS_PER_QUEUE_MAX: Final = 16
"""How many jobs of a queue one claim reads. The next claim follows at once."""
_PICKS_PER_LANE_MAX: Final = 16
"""How many jobs of a lane one claim picks. Each pick looks at every queue, while all other workers
wait for the lock."""
_RETRIED_AT_ONCE: Final = 1_000
RETRY_SECONDS_MAX: Final = 120.0
"""How long after its caller left a retry may join a chat. Clients retry within seconds, or after
the answer's Retry-After, which OpenAI's clients follow for up to a minute."""
_OVERDUE_PROBE_SECONDS: Final = 10.0
"""How late an announced probe of a target may be. A target that sleeps takes time to time out."""
_ENDPOINTS: Final = list(LLM_ENDPOINTS.values())
_NUL: Final = "\0"
_START: Final[Cursor] = ("", "")

_decode_moments: Final = msgspec.json.Decoder(dict[str, float]).decode
_decode_numbers: Final = msgspec.json.Decoder(dict[str, int]).decode


@dataclass(frozen=True, slots=True)
class SlotOffer:
    """A target that a worker claims jobs for.

    ``concurrency`` is how many jobs it may run at once, for all workers together. ``models`` are
    the models it lists, or None while they are unknown. ``resident`` are the models that were
    loaded when the worker last looked.
    """

    target: str
    concurrency: int
    models: frozenset[str] | None
    resident: frozenset[str]


@dataclass(frozen=True, slots=True)
class AssignedJob:
    """A claimed job and its target. ``loading``: the target must load the model first.

    ``had_output``: an earlier attempt has sent output, which is void from now on.
    """

    job: ClaimedJob
    target: str
    loading: bool
    had_output: bool


@dataclass(frozen=True, slots=True)
class Assignment:
    """The target a job was assigned to last. ``current``: the job is still held there."""

    target: str
    loading: bool
    current: bool


@dataclass(frozen=True, slots=True)
class TargetState:
    """Whether a target can be reached. If not: since when, and when it is probed next."""

    name: str
    unreachable_since: datetime | None
    next_try_at: datetime | None
    last_error: str | None


async def claim(
    db: Connection, order: ClaimOrder, offers: Sequence[SlotOffer], *, turn_seconds: float
) -> list[AssignedJob]:
    """Claim jobs for these targets, never more than each target's concurrency allows.

    Sets the order's ``look_again_seconds`` to 0 if there may be more to claim at once. If any
    concurrency limit is set, the claim is durable when this returns; otherwise it is as durable as
    the connection's commits. If the server crashes before that, a target may have one job too many
    until its worker finds out.
    """
    order.look_again_seconds = None
    if not offers or not any(order.room):
        return []

    async def read_and_claim(connection: RawConnection) -> list[asyncpg.Record]:
        async with _claim_transaction(connection):
            return await _read_and_claim(connection, order, offers, turn_seconds)

    rows = await db.run(read_and_claim)
    return [_assigned(row, order.lease) for row in rows]


async def mark_unreachable(db: Connection, target: str, error: str, retry_seconds: float) -> None:
    """Record that a target does not answer. Claims skip it for ``retry_seconds``."""
    await db.fetch(
        sql("mark_unreachable"), target, error[:ERROR_MESSAGE_CHARACTERS_MAX], retry_seconds
    )


async def mark_reachable(db: Connection, target: str) -> int:
    """Record that a target answers, and make the jobs that wait for a target due now.

    Returns how many jobs that were.
    """
    await db.fetch(sql("mark_reachable"), target)
    retried = 0
    while True:
        rows = await db.fetch(sql("retry_now"), _ENDPOINTS, _RETRIED_AT_ONCE)
        retried += len(rows)
        if len(rows) < _RETRIED_AT_ONCE:
            return retried


async def target_states(db: Connection) -> list[TargetState]:
    """Every target that had a claim or could not be reached, by name."""
    return [TargetState(*row) for row in await db.fetch(sql("target_states"))]


async def assignments(
    db: Connection, keys: Sequence[tuple[str, UUID]]
) -> dict[tuple[str, UUID], Assignment]:
    """The assignments by (org, id). Jobs that never had a target are missing."""
    rows = await db.fetch(
        sql("assignments"), [org for org, _ in keys], [job_id for _, job_id in keys]
    )
    return {
        (row["org_id"], row["job_id"]): Assignment(row["target"], row["loading"], row["current"])
        for row in rows
    }


async def assignment(db: Connection, org: str, job_id: UUID) -> Assignment | None:
    return (await assignments(db, [(org, job_id)])).get((org, job_id))


async def count_drop(db: Connection, org: str, job_id: UUID, lease: int) -> int | None:
    """Count that a target dropped a chat in mid-answer, though it answers others.

    Returns the drops so far, or None if the job is no longer held under that lease.
    """
    rows = await db.fetch(sql("count_drop"), org, job_id, lease)
    return rows[0]["drops"] if rows else None


async def mark_abandoned(db: Connection, org: str, job_id: UUID) -> bool:
    """Record that the chat's synchronous caller left. Returns whether a retry may join the chat."""
    return bool(await db.fetch(sql("mark_abandoned"), org, job_id))


async def join_abandoned(
    db: Connection, org: str, owner: str, digest: bytes
) -> tuple[UUID, State] | None:
    """Join an abandoned chat of that owner with that payload. No other retry can join it then."""
    rows = await db.fetch(sql("join_abandoned"), org, owner, digest, RETRY_SECONDS_MAX)
    return (rows[0]["id"], State(rows[0]["state"])) if rows else None


async def delete_abandoned(db: Connection, rows_max: int) -> int:
    """Delete the abandoned chats that no retry may join any more. Returns how many rows."""
    return len(await db.fetch(sql("delete_abandoned"), RETRY_SECONDS_MAX, rows_max))


async def is_for_its_caller(db: Connection, org: str, job_id: UUID) -> bool:
    """Whether only the synchronous caller can get the chat: it has no key and no webhook."""
    rows = await db.fetch(sql("is_for_its_caller"), org, job_id)
    return bool(rows) and rows[0]["is_for_its_caller"]


@asynccontextmanager
async def _claim_transaction(connection: RawConnection) -> AsyncIterator[None]:
    """A transaction that holds the lock of llm claims from its start.

    BEGIN and the lock share one round trip, because a caller waits for the first token.
    """
    try:
        # Within the try: if it is cancelled while it waits, the transaction has already begun.
        await connection.execute(sql("begin_claim"))
        yield
    except Exception:
        if not connection.is_closed():
            await connection.execute("ROLLBACK")
        raise
    await connection.execute("COMMIT")


async def _read_and_claim(
    connection: RawConnection, order: ClaimOrder, offers: Sequence[SlotOffer], turn_seconds: float
) -> list[asyncpg.Record]:
    read = await _read_targets(connection, offers)
    free = sum(target.free for target in read.targets)
    if not free:
        return []
    if read.limited:
        await connection.execute("SET LOCAL synchronous_commit = on")
        await connection.execute(core_sql("claims/lock"))
    most = min(free, max(order.room), _JOBS_PER_QUEUE_MAX)
    queues = await _read_queues(connection, order, most)
    left: dict[str, int] = {}
    if read.limited and queues:
        left, queues = await _read_limits(connection, queues)
    room = [min(slots, _PICKS_PER_LANE_MAX) for slots in order.room]
    choice = choose(
        queues,
        read.targets,
        dict(zip(order.lanes, room, strict=True)),
        now=read.now,
        turn_seconds=turn_seconds,
        left=left,
    )
    if not choice.picks:
        return []
    claimed = await _claim_picks(connection, order, choice)
    # The choice takes everything it can from what was read, so more is left only in these cases.
    read_in_part = any(len(queue.since) == most for queue in queues)
    scanned_in_part = any(_cursor_name(*scan) in order.cursors for scan in _lane_endpoints(order))
    missed = len(claimed) < len(choice.picks)
    cut_short = len(choice.picks) >= _PICKS_PER_LANE_MAX
    if 0 < len(claimed) < free and (read_in_part or scanned_in_part or missed or cut_short):
        order.look_again_seconds = 0.0
    return claimed


@dataclass(frozen=True, slots=True)
class _TargetsRead:
    """The targets as of ``now``, and whether any concurrency limit is set."""

    targets: list[TargetLoad]
    now: float
    limited: bool


async def _read_targets(connection: RawConnection, offers: Sequence[SlotOffer]) -> _TargetsRead:
    rows = await connection.fetch(
        sql("target_loads"), [offer.target for offer in offers], _ENDPOINTS
    )
    found = {row["name"]: row for row in rows}
    targets = [
        TargetLoad(
            offer.target,
            _free(offer, found[offer.target]),
            offer.models,
            offer.resident,
            frozenset(found[offer.target]["at_work_on"]),
            _turn(found[offer.target]),
        )
        for offer in offers
    ]
    return _TargetsRead(targets, rows[0]["now"], rows[0]["limited"])


def _free(offer: SlotOffer, row: asyncpg.Record) -> int:
    held: int = row["held"]
    if not row["unreachable"]:
        return max(0, offer.concurrency - held)
    # The worker that announced a probe did not make it: let one job try the target.
    overdue = row["next_try"] + _OVERDUE_PROBE_SECONDS <= row["now"]
    return min(1, offer.concurrency) if overdue and held == 0 else 0


def _turn(row: asyncpg.Record) -> TargetTurn:
    if row["model"] is None:
        return TargetTurn()
    return TargetTurn(
        row["model"],
        row["turn_began"],
        row["urgent_streak"],
        row["picks"],
        _decode_moments(row["ended"]),
        _decode_numbers(row["served"]),
    )


def _lane_endpoints(order: ClaimOrder) -> list[tuple[str, str]]:
    return [
        (lane, endpoint)
        for lane, room in zip(order.lanes, order.room, strict=True)
        if room > 0
        for endpoint in order.endpoints
    ]


async def _read_queues(
    connection: RawConnection, order: ClaimOrder, jobs_per_queue: int
) -> list[ModelQueue]:
    scans = _lane_endpoints(order)
    starts = [order.cursors.get(_cursor_name(*scan), _START)[1].partition(_NUL) for scan in scans]
    rows = await connection.fetch(
        sql("waiting_queues"),
        [lane for lane, _ in scans],
        [endpoint for _, endpoint in scans],
        [org for org, _, _ in starts],
        [model for _, _, model in starts],
        QUEUES_SCANNED_MAX,
        jobs_per_queue,
    )
    for lane, endpoint in scans:
        order.cursors.pop(_cursor_name(lane, endpoint), None)
    for row in rows:
        if row["scanned"] == QUEUES_SCANNED_MAX:
            # There may be more: the next claim continues here.
            order.cursors[_cursor_name(row["lane"], row["endpoint"])] = (
                row["endpoint"],
                f"{row['org_id']}{_NUL}{row['flow']}",
            )
    return [
        ModelQueue(row["lane"], row["endpoint"], row["org_id"], row["flow"], tuple(row["since"]))
        for row in rows
    ]


async def _read_limits(
    connection: RawConnection, queues: Sequence[ModelQueue]
) -> tuple[dict[str, int], list[ModelQueue]]:
    """How many jobs each limit leaves, and the queues with the limits that apply to them."""
    rows = await connection.fetch(sql("limits"), [*{queue.org for queue in queues}])
    left: dict[str, int] = {}
    for row in rows:
        # The limits of an organisation cover all of it, whatever their names.
        name = "" if row["scope"] == "org" else row["name"]
        limit = _limit_name(row["org_id"], row["scope"], name)
        left[limit] = min(row["free"], left.get(limit, row["free"]))
    return left, [replace(queue, limits=tuple(_limits_of(queue) & left.keys())) for queue in queues]


def _limits_of(queue: ModelQueue) -> set[str]:
    """The names of all limits that could apply to the queue."""
    return {
        _limit_name(queue.org, "org", ""),
        _limit_name(queue.org, "flow", queue.model),
        _limit_name(queue.org, "endpoint", queue.endpoint),
        _limit_name("*", "endpoint", queue.endpoint),
    }


def _limit_name(org: str, scope: str, name: str) -> str:
    return _NUL.join((org, scope, name))


async def _claim_picks(
    connection: RawConnection, order: ClaimOrder, choice: ScheduleChoice
) -> list[asyncpg.Record]:
    positions: Counter[ModelQueue] = Counter()
    picks = []
    for pick in choice.picks:
        queue = pick.queue
        positions[queue] += 1
        picks.append(
            (
                queue.lane,
                queue.endpoint,
                queue.org,
                queue.model,
                positions[queue],
                pick.target,
                pick.loading,
            )
        )
    turns = [
        (
            name,
            turn.model,
            turn.began,
            turn.urgent_streak,
            turn.picks,
            msgspec.json.encode(turn.ended).decode(),
            msgspec.json.encode(turn.served).decode(),
        )
        for name, turn in choice.turns.items()
    ]
    return await connection.fetch(
        sql("claim"),
        order.lease,
        order.endpoints,
        order.timeouts,
        *(list(column) for column in zip(*picks, strict=True)),
        *(list(column) for column in zip(*turns, strict=True)),
    )


def _assigned(row: asyncpg.Record, lease: int) -> AssignedJob:
    job = ClaimedJob(
        row["org_id"],
        row["id"],
        Lane(row["lane"]),
        row["endpoint"],
        row["flow"],
        row["payload"],
        row["attempt"],
        row["failures"],
        row["unreachables"],
        row["timeout_seconds"],
        row["request_id"],
        lease,
        row["traceparent"],
        row["waited"],
    )
    return AssignedJob(job, row["target"], row["loading"], row["had_output"])


def _cursor_name(lane: str, endpoint: str) -> str:
    return f"{lane} {endpoint}"
