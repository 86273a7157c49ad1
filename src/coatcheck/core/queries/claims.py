"""Claims under limits: look at what waits, choose in Python, take what was chosen.

All three happen in one transaction, under an advisory lock that it takes before its first snapshot
and holds until its commit. Isolation is READ COMMITTED, so every statement sees all that committed
before it began: each claim counts every permit, and every token, that earlier claims took.

The look finds the queues, with the limits and rates that apply to them. ``domain/claim_choice.py``
chooses. The take claims exactly the chosen number of jobs of each queue, or fewer if some have gone
meanwhile, and moves the rates on by what it claimed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from random import Random
from typing import Any, Final, NamedTuple, TypeVar

import asyncpg

from coatcheck.core.queries import sql
from coatcheck.core.queries.leases import ClaimOrder, claimed_jobs
from coatcheck.crash import crash_point
from coatcheck.db.connection import Connection, RawConnection
from coatcheck.domain.claim_choice import (
    AfterScan,
    ClaimRotation,
    KeyScan,
    Limit,
    Queue,
    QueueGroup,
    RunRates,
    after_scan,
    choose,
    shares,
    tokens,
)
from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.limits import (
    QUEUES_SCANNED_MAX,
    RATE_BURST_SECONDS,
    RUN_QUEUES_SCANNED_MAX,
)

Claimed = TypeVar("Claimed")

_LOCKED_SECONDS: Final = 0.5
"""Until the next try, after another claim has kept the lock for seconds."""


async def claim_limited(db: Connection, order: ClaimOrder) -> list[ClaimedJob]:
    """Claim jobs of queues under a limit, never more than the limits allow.

    Sets the order's ``look_again_seconds`` if jobs are left that only wait for time to pass.
    """

    async def claim(connection: RawConnection) -> list[ClaimedJob]:
        async with claim_transaction(connection, sql("claims/begin")):
            claimed = await LimitedClaim(connection, order).claim()
            if claimed:
                crash_point("claim.limited_not_committed")
            return claimed

    return await unless_locked(order, db.run(claim))


async def unless_locked(order: ClaimOrder, claim: Awaitable[list[Claimed]]) -> list[Claimed]:
    """What a claim under a lock claimed: nothing, if it did not get the lock in time. Then the
    order says when to look again."""
    try:
        return await claim
    except asyncpg.LockNotAvailableError:
        order.look_again_seconds = _LOCKED_SECONDS
        return []


@asynccontextmanager
async def claim_transaction(connection: RawConnection, begin: str) -> AsyncIterator[None]:
    """A transaction that ``begin`` starts: BEGIN and the lock of its claims, in one round trip."""
    try:
        # Within the try: if it is cancelled while it waits, the transaction has already begun.
        await connection.execute(begin)
        yield
    except Exception:
        if not connection.is_closed():
            await connection.execute("ROLLBACK")
        raise
    await connection.execute("COMMIT")


async def look_at_all(
    connection: RawConnection, order: ClaimOrder, *, jobs: int
) -> tuple[list[asyncpg.Record], bool]:
    """The queues that have work, under a limit or not, and whether that is all of them.

    ``jobs`` is how many of each queue are looked at: since when they wait. Moves the order on to
    where the next look continues.
    """
    scans = {
        (lane, endpoint): order.turns.setdefault(f"{lane} {endpoint}", ClaimRotation())
        for lane, room in zip(order.lanes, order.room, strict=True)
        if room > 0
        for endpoint in order.endpoints
    }
    rows = await connection.fetch(
        sql("claims/look_at_all"),
        [lane for lane, _ in scans],
        [endpoint for _, endpoint in scans],
        [scan.after_org for scan in scans.values()],
        [scan.after_key for scan in scans.values()],
        QUEUES_SCANNED_MAX,
        jobs,
    )
    ended = [row for row in rows if row["steps"] == QUEUES_SCANNED_MAX]
    for scan in scans.values():
        scan.after_org = scan.after_key = ""
    for row in ended:
        scan = scans[row["lane"], row["endpoint"]]
        scan.after_org, scan.after_key = row["org_id"], row["key"]
    holders = dict(zip(order.lanes, order.holders, strict=False))
    return [row for row in rows if row["org_id"] not in (holders.get(row["lane"]) or ())], not ended


async def held_jobs_by_limit(connection: RawConnection) -> Counter[Limit]:
    """How many jobs are held under each limit that could be set. A held job is the permit."""
    held: Counter[Limit] = Counter()
    for endpoint, org, key, jobs in await connection.fetch(sql("claims/held")):
        for limit in limits_on(endpoint, org, key):
            held[limit] += jobs
    return held


async def free_permits(connection: RawConnection, orgs: Collection[str]) -> dict[Limit, int]:
    """How many jobs each concurrency limit that is set on these organisations still allows."""
    rows = await sql.fetch(connection, "claims/limits_set", orgs=[*orgs])
    held = await held_jobs_by_limit(connection) if rows else Counter()
    free: dict[Limit, int] = {}
    for org, scope, name, held_max in rows:
        limit = _limit_set(org, scope, name)
        free[limit] = min(held_max - held[limit], free.get(limit, held_max))
    return free


def _limit_set(org: str, scope: str, name: str) -> Limit:
    match scope:
        case "org":
            # It applies to all of the organisation, whatever its name.
            return ("org", org)
        case "flow":
            return ("queue", org, name)
        case _:
            return ("endpoint", name) if org == "*" else ("endpoint", name, org)


def limits_on(endpoint: str, org: str, key: str) -> tuple[Limit, ...]:
    """The concurrency limits that could apply to a queue."""
    return (
        ("org", org),
        ("endpoint", endpoint, org),
        ("endpoint", endpoint),
        ("queue", org, key),
        ("run", org, key.partition("/")[0]),
    )


class _RunKey(NamedTuple):
    """A queue of a run."""

    org: str
    run: str
    key: str


class LimitedClaim:
    """One claim under limits, within a transaction that holds the lock."""

    def __init__(self, connection: RawConnection, order: ClaimOrder) -> None:
        self._connection = connection
        self._order = order
        self._room = dict(zip(order.lanes, order.room, strict=True))
        self._for_newcomers = {lane for lane in order.lanes if order.is_for_newcomers(lane)}
        self._now: datetime | None = None
        self._held: Counter[Limit] | None = None
        self._free: dict[Limit, int] = {("lane", lane): room for lane, room in self._room.items()}
        # Seconds until there is a token for jobs that were seen.
        self._waits: list[float] = []
        self._scans: dict[QueueGroup, AfterScan] = {}
        self._idle: list[_RunKey] = []

    async def claim(self) -> list[ClaimedJob]:
        groups = await self._look()
        queues = [Queue(group, group.name, group.limits) for group in groups if not group.rates]
        runs = [group for group in groups if group.rates]
        if runs:
            queues += await self._look_into(runs, shares(groups, self._room, self._free))
        self._order.look_again_seconds = min(self._waits, default=None)
        return await self._take(choose(queues, self._free, Random(self._order.lease)))

    # Look

    async def _look(self) -> list[QueueGroup]:
        """The queues and runs under a limit that have work and may start some of it now."""
        found = await self._connection.fetch(
            sql("claims/look"), *self._order.arguments(limited=True)
        )
        rows = [row for row in found if row["is_run"] is not None]
        self._order.move(
            [
                (row["lane"], row["org_id"], row["endpoint"], row["name"])
                for row in found
                if row["is_run"] is None
            ],
            limited=True,
        )
        if not rows:
            return []
        self._now = rows[0]["now"]
        limits = [held_max(row) for row in rows]
        await self._count_permits(limits)
        # A scan that began within a run may list it twice.
        groups = {row[:4]: self._group(row, each) for row, each in zip(rows, limits, strict=True)}
        return [group for group in groups.values() if self._is_open(group)]

    async def _count_permits(self, limits: Iterable[Mapping[Limit, int]]) -> None:
        """What these limits still allow."""
        for each in limits:
            if each and self._held is None:
                self._held = await held_jobs_by_limit(self._connection)
            for limit, most in each.items():
                self._free[limit] = most - self._held[limit] if self._held else most

    def _group(self, row: asyncpg.Record, permits: Iterable[Limit]) -> QueueGroup:
        lane, endpoint, org, name = row[:4]
        limits: list[Limit] = [("lane", lane), *permits]
        if lane in self._for_newcomers:
            limits.append(("newcomer", lane, org))
            self._free["newcomer", lane, org] = 1
        if not row["is_run"]:
            return QueueGroup(lane, endpoint, org, name, tuple(limits))
        rates = RunRates(*row[10:15])
        if rates.tokens is not None:
            limits.append(("rate", org, name))
            self._free["rate", org, name] = rates.tokens
        return QueueGroup(lane, endpoint, org, name, tuple(limits), rates)

    def _is_open(self, group: QueueGroup) -> bool:
        closed = [limit for limit in group.limits if self._free[limit] <= 0]
        if group.rates and closed == [("rate", group.org, group.name)]:
            self._waits.append((group.rates.ahead_seconds or 0.0) - RATE_BURST_SECONDS)
        return not closed

    # Look into runs

    async def _look_into(
        self, runs: Sequence[QueueGroup], share: Mapping[QueueGroup, int]
    ) -> list[Queue]:
        """The queues of these runs that may start a task now, up to the share of each run.

        Queues that never used their rate come first, then those that waited longest.
        """
        rows = await sql.fetch(
            self._connection,
            "claims/run_keys",
            lanes=[run.lane for run in runs],
            endpoints=[run.endpoint for run in runs],
            orgs=[run.org for run in runs],
            runs=[run.name for run in runs],
            shares=[share[run] for run in runs],
            rated=[_rates(run).key_per_second is not None for run in runs],
            looked_to=[_rates(run).looked_to for run in runs],
            scans=[_rates(run).scan_is_due for run in runs],
            now=self._now,
            burst_seconds=RATE_BURST_SECONDS,
            passed_max=RUN_QUEUES_SCANNED_MAX,
        )
        await self._count_permits(
            {("queue", runs[row["number"]].org, row["key"]): row["queue_max"]}
            for row in rows
            if row["queue_max"] is not None
        )
        queues = []
        idle: dict[_RunKey, bool] = {}
        for run in runs:
            self._free["share", run.lane, run.endpoint, run.org, run.name] = share[run]
            if not _rates(run).scan_is_due:
                self._waits.append(_rates(run).next_look_seconds or 0.0)
        for row in rows:
            run, key, ahead = runs[row["number"]], row["key"], row["ahead_seconds"]
            if key is None:
                self._waits.append(ahead - RATE_BURST_SECONDS)
            elif row["has_work"]:
                queues.append(self._queue(run, key, ahead, row["queue_max"]))
            elif ahead is not None:
                # It was ahead of others that are due.
                self._waits.append(0.0)
            if key is not None and ahead is not None and ahead <= 0:
                named = _RunKey(run.org, run.name, key)
                idle[named] = idle.get(named, True) and not row["has_work"]
            if row["passed"] is not None:
                scan = KeyScan(row["passed"], row["found"], key, row["is_round"])
                self._scans[run] = after_scan(_rates(run), scan, share[run])
        self._waits += [0.0 for scan in self._scans.values() if scan.unfinished]
        self._idle = [named for named, is_idle in idle.items() if is_idle]
        return queues

    def _queue(
        self, run: QueueGroup, key: str, ahead_seconds: float | None, queue_max: int | None
    ) -> Queue:
        limits = [*run.limits, ("share", run.lane, run.endpoint, run.org, run.name)]
        if queue_max is not None:
            limits.append(("queue", run.org, key))
        per_second = _rates(run).key_per_second
        if per_second is not None:
            limits.append(("rate", run.org, run.name, key))
            self._free["rate", run.org, run.name, key] = tokens(per_second, ahead_seconds)
        return Queue(run, key, tuple(limits))

    # Take

    async def _take(self, picks: Sequence[Queue]) -> list[ClaimedJob]:
        notes = self._notes(picks)
        if not (picks or notes or self._idle):
            return []
        places = [
            (each.group.lane, each.group.endpoint, each.group.org, each.key) for each in picks
        ]
        arguments, turns = take_arguments(self._order, places)
        rows = await sql.fetch(
            self._connection,
            "claims/take",
            **arguments,
            shown=None,
            now=self._now,
            **{name: [getattr(note, name) for note in notes] for name in _RateNote._fields},
            idle_orgs=[each.org for each in self._idle],
            idle_runs=[each.run for each in self._idle],
            idle_keys=[each.key for each in self._idle],
        )
        self._order.was_locked_out = bool(picks) and not rows
        rows.sort(key=lambda row: turns[row["pick"] - 1])
        return claimed_jobs(rows, self._order.lease)

    def _notes(self, picks: Sequence[Queue]) -> list[_RateNote]:
        """What changes in run_tokens: rates of which tokens were picked, ends of scans."""
        picked = dict.fromkeys(picks)
        runs = dict.fromkeys(queue.group for queue in picked if queue.group.rates)
        notes: dict[tuple[str, str, str], _RateNote] = {}
        for run in runs | dict.fromkeys(self._scans):
            rates, scan = _rates(run), self._scans.get(run)
            moved = scan is not None and (
                scan.looked_to != rates.looked_to or scan.pause_seconds is not None
            )
            if moved or (run in runs and rates.per_second is not None):
                pause = None if scan is None else scan.pause_seconds
                notes[run.org, run.name, ""] = _RateNote(
                    run.org,
                    run.name,
                    "",
                    rates.per_second,
                    rates.looked_to if scan is None else scan.looked_to,
                    rates.next_look_seconds if pause is None else pause,
                )
        for queue in picked:
            run = queue.group
            if run.rates is not None and run.rates.key_per_second is not None:
                notes[run.org, run.name, queue.key] = _RateNote(
                    run.org, run.name, queue.key, run.rates.key_per_second, "", None
                )
        return [*notes.values()]


class _RateNote(NamedTuple):
    """A row of run_tokens to write. The fields are named as the arguments of the statement."""

    rate_orgs: str
    rate_runs: str
    rate_keys: str
    per_second: float | None
    looked_to: str
    next_look_seconds: float | None


def take_arguments(
    order: ClaimOrder, picks: Sequence[tuple[str, str, str, str]]
) -> tuple[dict[str, Any], list[int]]:
    """The arguments of ``claims/taken`` for picks of (lane, endpoint, organisation, queue key).

    The statement numbers the jobs of a queue together, from 1 on. The second part of the answer
    lists, in the order of these numbers, the positions in ``picks``.
    """
    by_queue: dict[tuple[str, str, str, str], list[int]] = {}
    for at, queue in enumerate(picks):
        by_queue.setdefault(queue, []).append(at)
    turns: list[int] = []
    before = []
    for each in by_queue.values():
        before.append(len(turns))
        turns += each
    arguments = {
        "lease": order.lease,
        "served": order.endpoints,
        "timeouts": order.timeouts,
        "lanes": [lane for lane, _, _, _ in by_queue],
        "endpoints": [endpoint for _, endpoint, _, _ in by_queue],
        "orgs": [org for _, _, org, _ in by_queue],
        "keys": [key for _, _, _, key in by_queue],
        "jobs": [len(each) for each in by_queue.values()],
        "before": before,
    }
    return arguments, turns


def held_max(row: asyncpg.Record) -> dict[Limit, int]:
    """The concurrency limits that are set on a queue or a run, from a row of the look."""
    endpoint, org, name, org_max, endpoint_max, shared_max, queue_max, run_max = row[1:9]
    limits: dict[Limit, int] = {}
    if org_max is not None:
        limits["org", org] = org_max
    if endpoint_max is not None:
        limits["endpoint", endpoint, org] = endpoint_max
    if shared_max is not None:
        limits["endpoint", endpoint] = shared_max
    if queue_max is not None:
        limits["queue", org, name] = queue_max
    if run_max is not None:
        limits["run", org, name] = run_max
    return limits


def _rates(run: QueueGroup) -> RunRates:
    assert run.rates is not None
    return run.rates
