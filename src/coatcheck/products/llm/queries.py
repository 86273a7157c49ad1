"""The queue of the llm surface: claims for targets, and what is known of them.

Unlike the other claims this one is a choice (``model_scheduler.py``), made in Python between a
look and a take, in one transaction under a lock. llm jobs take seconds; this takes milliseconds.
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

from coatcheck.core.queries.leases import LIMITED_CLAIM_LOCK, ClaimOrder, Cursor
from coatcheck.core.sql import sql as core_sql
from coatcheck.db.connection import Connection, RawConnection
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
from coatcheck.products.llm.sql import sql

_JOBS_OF_A_LINE_MAX: Final = 16
"""That one claim looks at; the next one comes at once."""
_PICKS_OF_A_LANE_MAX: Final = 16
"""That one claim makes: each looks at every line, and everybody else waits for the lock."""
_MADE_DUE_AT_ONCE: Final = 1_000
RETRY_SECONDS_MAX: Final = 120.0
"""How long after its caller left a retry may join a chat. Clients try again within seconds, or when
they were told to, which OpenAI's follow for up to a minute."""
_TRY_SECONDS_MAX: Final = 10.0
"""For who said when they would try a target: one that is asleep is not known to be at once."""
_ENDPOINTS: Final = list(LLM_ENDPOINTS.values())
_NUL: Final = "\0"
_START: Final[Cursor] = ("", "")

_decode_moments: Final = msgspec.json.Decoder(dict[str, float]).decode
_decode_numbers: Final = msgspec.json.Decoder(dict[str, int]).decode


@dataclass(frozen=True, slots=True)
class SlotOffer:
    """A target that a worker would claim jobs for.

    ``concurrency`` is how many jobs it may have at once, from all workers. ``models`` are those it
    lists, None while nobody knows; ``resident`` those it had loaded when the worker looked.
    """

    target: str
    concurrency: int
    models: frozenset[str] | None
    resident: frozenset[str]


@dataclass(frozen=True, slots=True)
class AssignedJob:
    """A claimed job and its target. ``loading``: its model has to be loaded first.

    ``had_output``: an earlier attempt has sent some, which is void from now on.
    """

    job: ClaimedJob
    target: str
    loading: bool
    had_output: bool


@dataclass(frozen=True, slots=True)
class Assignment:
    """The target a job was given to last. ``current``: it still is at work there."""

    target: str
    loading: bool
    current: bool


@dataclass(frozen=True, slots=True)
class TargetState:
    """Whether a target can be reached: since when not, and when it is tried again."""

    name: str
    unreachable_since: datetime | None
    next_try_at: datetime | None
    last_error: str | None


async def claim(
    db: Connection, order: ClaimOrder, offers: Sequence[SlotOffer], *, turn_seconds: float
) -> list[AssignedJob]:
    """Take out jobs for these targets, never more than each may have.

    Sets the order's ``look_again_seconds`` to 0 if there may be more to take at once. Under a limit
    that somebody has set, it is durable when this returns; else when the line's commits are. Should
    the server crash before that, a target may have a job too many for the moment until its worker
    finds out.
    """
    order.look_again_seconds = None
    if not offers or not any(order.room):
        return []

    async def look_and_take(connection: RawConnection) -> list[asyncpg.Record]:
        async with _one_at_a_time(connection):
            return await _look_and_take(connection, order, offers, turn_seconds)

    rows = await db.run(look_and_take)
    return [_assigned(row, order.lease) for row in rows]


async def note_unreachable(db: Connection, target: str, error: str, retry_seconds: float) -> None:
    """Nobody answers there: claim nothing for it for so long."""
    await db.fetch(
        sql("note_unreachable"), target, error[:ERROR_MESSAGE_CHARACTERS_MAX], retry_seconds
    )


async def note_alive(db: Connection, target: str) -> int:
    """It has answered: claim for it again, and try the jobs now that wait for a target to return.

    How many those are.
    """
    await db.fetch(sql("note_alive"), target)
    made_due = 0
    while True:
        rows = await db.fetch(sql("make_due"), _ENDPOINTS, _MADE_DUE_AT_ONCE)
        made_due += len(rows)
        if len(rows) < _MADE_DUE_AT_ONCE:
            return made_due


async def target_states(db: Connection) -> list[TargetState]:
    """Every target that was ever claimed for, or found away, by name."""
    return [TargetState(*row) for row in await db.fetch(sql("target_states"))]


async def assignments(
    db: Connection, keys: Sequence[tuple[str, UUID]]
) -> dict[tuple[str, UUID], Assignment]:
    """By (org, id), the targets of those that were ever given to one."""
    rows = await db.fetch(
        sql("assignments"), [org for org, _ in keys], [job_id for _, job_id in keys]
    )
    return {
        (row["org_id"], row["job_id"]): Assignment(row["target"], row["loading"], row["current"])
        for row in rows
    }


async def assignment(db: Connection, org: str, job_id: UUID) -> Assignment | None:
    return (await assignments(db, [(org, job_id)])).get((org, job_id))


async def note_drop(db: Connection, org: str, job_id: UUID, lease: int) -> int | None:
    """A target dropped a chat in mid-answer, and is there. How often that was so by now; None if
    the job is not held under that lease any more."""
    rows = await db.fetch(sql("note_drop"), org, job_id, lease)
    return rows[0]["drops"] if rows else None


async def note_abandoned(db: Connection, org: str, job_id: UUID) -> bool:
    """The chat's synchronous caller has gone. Whether a retry may join it from now on."""
    return bool(await db.fetch(sql("note_abandoned"), org, job_id))


async def join_abandoned(
    db: Connection, org: str, owner: str, digest: bytes
) -> tuple[UUID, State] | None:
    """A chat of that owner with that payload whose caller has gone; nobody else joins it then."""
    rows = await db.fetch(sql("join_abandoned"), org, owner, digest, RETRY_SECONDS_MAX)
    return (rows[0]["id"], State(rows[0]["state"])) if rows else None


async def forget_abandoned(db: Connection, rows_max: int) -> int:
    """Delete what no retry may join any more. How many rows those were."""
    return len(await db.fetch(sql("forget_abandoned"), RETRY_SECONDS_MAX, rows_max))


async def is_for_its_caller(db: Connection, org: str, job_id: UUID) -> bool:
    """Whether nobody but the caller who waits for a chat could want it."""
    rows = await db.fetch(sql("is_for_its_caller"), org, job_id)
    return bool(rows) and rows[0]["is_for_its_caller"]


@asynccontextmanager
async def _one_at_a_time(connection: RawConnection) -> AsyncIterator[None]:
    """A transaction that holds the lock of llm claims from its first moment on.

    Both in one round trip: somebody waits for the first word of an answer.
    """
    try:
        # Within the try: should it be cancelled while it waits, the transaction has begun already.
        await connection.execute(sql("begin_claim"))
        yield
    except Exception:
        if not connection.is_closed():
            await connection.execute("ROLLBACK")
        raise
    await connection.execute("COMMIT")


async def _look_and_take(
    connection: RawConnection, order: ClaimOrder, offers: Sequence[SlotOffer], turn_seconds: float
) -> list[asyncpg.Record]:
    seen = await _look_at_targets(connection, offers)
    free = sum(target.free for target in seen.targets)
    if not free:
        return []
    if seen.limited:
        await connection.execute("SET LOCAL synchronous_commit = on")
        await connection.execute(core_sql("limits/lock_limits"), LIMITED_CLAIM_LOCK)
    most = min(free, max(order.room), _JOBS_OF_A_LINE_MAX)
    lines = await _look_at_lines(connection, order, most)
    left: dict[str, int] = {}
    if seen.limited and lines:
        left, lines = await _look_at_limits(connection, lines)
    room = [min(places, _PICKS_OF_A_LANE_MAX) for places in order.room]
    choice = choose(
        lines,
        seen.targets,
        dict(zip(order.lanes, room, strict=True)),
        now=seen.now,
        turn_seconds=turn_seconds,
        left=left,
    )
    if not choice.picks:
        return []
    taken = await _take(connection, order, choice)
    # The choice takes all there is of what it was shown.
    shown_in_part = any(len(db.since) == most for db in lines)
    scanned_in_part = any(_cursor_name(*scan) in order.cursors for scan in _scans(order))
    missed = len(taken) < len(choice.picks)
    cut_short = len(choice.picks) >= _PICKS_OF_A_LANE_MAX
    if 0 < len(taken) < free and (shown_in_part or scanned_in_part or missed or cut_short):
        order.look_again_seconds = 0.0
    return taken


@dataclass(frozen=True, slots=True)
class _SeenTarget:
    """The targets as they are ``now``, and whether anything at all is under a limit."""

    targets: list[TargetLoad]
    now: float
    limited: bool


async def _look_at_targets(connection: RawConnection, offers: Sequence[SlotOffer]) -> _SeenTarget:
    rows = await connection.fetch(
        sql("look_at_targets"), [offer.target for offer in offers], _ENDPOINTS
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
    return _SeenTarget(targets, rows[0]["now"], rows[0]["limited"])


def _free(offer: SlotOffer, row: asyncpg.Record) -> int:
    held: int = row["held"]
    if not row["unreachable"]:
        return max(0, offer.concurrency - held)
    # One job finds out for all of them, if whoever wanted to try does not.
    overdue = row["next_try"] + _TRY_SECONDS_MAX <= row["now"]
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


def _scans(order: ClaimOrder) -> list[tuple[str, str]]:
    return [
        (lane, endpoint)
        for lane, room in zip(order.lanes, order.room, strict=True)
        if room > 0
        for endpoint in order.endpoints
    ]


async def _look_at_lines(
    connection: RawConnection, order: ClaimOrder, jobs_of_a_line: int
) -> list[ModelQueue]:
    scans = _scans(order)
    places = [order.cursors.get(_cursor_name(*scan), _START)[1].partition(_NUL) for scan in scans]
    rows = await connection.fetch(
        sql("look_at_lines"),
        [lane for lane, _ in scans],
        [endpoint for _, endpoint in scans],
        [org for org, _, _ in places],
        [model for _, _, model in places],
        QUEUES_SCANNED_MAX,
        jobs_of_a_line,
    )
    for lane, endpoint in scans:
        order.cursors.pop(_cursor_name(lane, endpoint), None)
    for row in rows:
        if row["scanned"] == QUEUES_SCANNED_MAX:
            # There may be more: the next claim goes on from here.
            order.cursors[_cursor_name(row["lane"], row["endpoint"])] = (
                row["endpoint"],
                f"{row['org_id']}{_NUL}{row['flow']}",
            )
    return [
        ModelQueue(row["lane"], row["endpoint"], row["org_id"], row["flow"], tuple(row["since"]))
        for row in rows
    ]


async def _look_at_limits(
    connection: RawConnection, lines: Sequence[ModelQueue]
) -> tuple[dict[str, int], list[ModelQueue]]:
    """How many jobs each limit leaves, and the lines with the limits they are under."""
    rows = await connection.fetch(sql("look_at_limits"), [*{db.org for db in lines}])
    left: dict[str, int] = {}
    for row in rows:
        # An organisation's own limits cover all of it, whatever they are called.
        name = "" if row["scope"] == "org" else row["name"]
        limit = _limit_name(row["org_id"], row["scope"], name)
        left[limit] = min(row["free"], left.get(limit, row["free"]))
    return left, [replace(db, limits=tuple(_limits_of(db) & left.keys())) for db in lines]


def _limits_of(db: ModelQueue) -> set[str]:
    """The names of whatever limits it could be under."""
    return {
        _limit_name(db.org, "org", ""),
        _limit_name(db.org, "flow", db.model),
        _limit_name(db.org, "endpoint", db.endpoint),
        _limit_name("*", "endpoint", db.endpoint),
    }


def _limit_name(org: str, scope: str, name: str) -> str:
    return _NUL.join((org, scope, name))


async def _take(
    connection: RawConnection, order: ClaimOrder, choice: ScheduleChoice
) -> list[asyncpg.Record]:
    places: Counter[ModelQueue] = Counter()
    picks = []
    for pick in choice.picks:
        db = pick.line
        places[db] += 1
        picks.append(
            (
                db.lane,
                db.endpoint,
                db.org,
                db.model,
                places[db],
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
        sql("take"),
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
