"""Claims llm jobs for targets.

A claim looks and takes as claims under limits do (``core/queries/claims.py``), with a choice of its
own (``model_scheduler.py``) and a lock of its own. llm jobs take seconds; this takes milliseconds.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

import asyncpg
import msgspec

from coatcheck.core.queries import sql as core_sql
from coatcheck.core.queries.claims import (
    claim_transaction,
    free_permits,
    limits_on,
    look_at_all,
    take_arguments,
    unless_locked,
)
from coatcheck.core.queries.leases import ClaimOrder, claimed_jobs
from coatcheck.db.connection import Connection, RawConnection
from coatcheck.db.queries import Queries
from coatcheck.domain.claim_choice import Limit
from coatcheck.domain.job import ClaimedJob
from coatcheck.products.llm.model import LLM_ENDPOINTS
from coatcheck.products.llm.model_scheduler import (
    ModelQueue,
    ScheduleChoice,
    TargetLoad,
    TargetTurn,
    choose,
)

sql: Final = Queries("coatcheck.products.llm", "queries")
JOBS_PER_QUEUE_MAX: Final = 16
"""How many jobs of a queue one claim reads. The next claim follows at once."""
PICKS_PER_LANE_MAX: Final = 16
"""How many jobs of a lane one claim picks. Each pick looks at every queue, while all other workers
wait for the lock."""
_OVERDUE_PROBE_SECONDS: Final = 10.0
"""How late an announced probe of a target may be. A target that sleeps takes time to time out."""
_ENDPOINTS: Final = list(LLM_ENDPOINTS.values())

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

    async def read_and_claim(connection: RawConnection) -> list[AssignedJob]:
        async with claim_transaction(connection, sql("begin_claim")):
            return await _read_and_claim(connection, order, offers, turn_seconds)

    return await unless_locked(order, db.run(read_and_claim))


async def _read_and_claim(
    connection: RawConnection, order: ClaimOrder, offers: Sequence[SlotOffer], turn_seconds: float
) -> list[AssignedJob]:
    read = await _read_targets(connection, offers)
    free = sum(target.free for target in read.targets)
    if not free:
        return []
    if read.limited:
        await connection.execute("SET LOCAL synchronous_commit = on")
        await connection.execute(core_sql("claims/lock"))
    most = min(free, max(order.room), JOBS_PER_QUEUE_MAX)
    rows, saw_all = await look_at_all(connection, order, jobs=most)
    queues = [ModelQueue(*row[:5]) for row in rows]
    left: dict[Limit, int] = {}
    if read.limited:
        left = await free_permits(connection, {queue.org for queue in queues})
        queues = [replace(queue, limits=_limits_of(queue, left)) for queue in queues]
    room = [min(slots, PICKS_PER_LANE_MAX) for slots in order.room]
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
    order.was_locked_out = not claimed
    # The choice takes everything it can from what was read, so more is left only in these cases.
    read_in_part = any(len(queue.since) == most for queue in queues)
    missed = len(claimed) < len(choice.picks)
    cut_short = len(choice.picks) >= PICKS_PER_LANE_MAX
    if 0 < len(claimed) < free and (read_in_part or not saw_all or missed or cut_short):
        order.look_again_seconds = 0.0
    return claimed


def _limits_of(queue: ModelQueue, limits_set: Collection[Limit]) -> tuple[Limit, ...]:
    possible = limits_on(queue.endpoint, queue.org, queue.model)
    return tuple(limit for limit in possible if limit in limits_set)


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


async def _claim_picks(
    connection: RawConnection, order: ClaimOrder, choice: ScheduleChoice
) -> list[AssignedJob]:
    arguments, positions = take_arguments(
        order,
        [
            (pick.queue.lane, pick.queue.endpoint, pick.queue.org, pick.queue.model)
            for pick in choice.picks
        ],
    )
    picks = [choice.picks[position] for position in positions]
    turns = choice.turns
    rows = await sql.fetch(
        connection,
        "claim",
        **arguments,
        targets=[pick.target for pick in picks],
        shown=[pick.loading for pick in picks],
        turn_names=list(turns),
        models=[turn.model for turn in turns.values()],
        began=[turn.began for turn in turns.values()],
        urgent_streaks=[turn.urgent_streak for turn in turns.values()],
        picks=[turn.picks for turn in turns.values()],
        ended=[_json(turn.ended) for turn in turns.values()],
        served_orgs=[_json(turn.served) for turn in turns.values()],
    )
    rows.sort(key=lambda row: positions[row["pick"] - 1])
    jobs = claimed_jobs((row[:-1] for row in rows), order.lease)
    return [
        AssignedJob(job, pick.target, pick.loading, row["had_output"])
        for job, row, pick in zip(jobs, rows, (picks[row["pick"] - 1] for row in rows), strict=True)
    ]


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
