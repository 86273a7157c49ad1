"""Rate limits per credential and per organisation, exact over any number of replicas.

The database counts, and its clock cuts the windows (sql/rates/take.sql). So that a high limit does
not cost a statement a request, a replica takes several requests at a time from it, as many as it
has lately needed and at most a fiftieth of the limit, and gives back within seconds what it does
not use; under limits below 100, that is one at a time. See docs/explanation/rate-limits.md.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from coatcheck.core.queries.rates import Leftover, Limited, RateGrant, RateRequest, RateWindows
from coatcheck.db.connection import Connection
from coatcheck.domain.errors import DatabaseUnavailable, OutcomeUnknown, RateLimited
from coatcheck.domain.tenants import Principal, RateLimit
from coatcheck.http.response import RawHeaders
from coatcheck.telemetry import metrics

GRANT_SHARE: Final = 50
"""A replica takes at most this part of a limit ahead of its requests: a fiftieth."""
REFUSAL_SECONDS_MAX: Final = 1.0
"""How long a limit that was used up is not asked about again: another replica may give back."""
FORGOTTEN_SECONDS: Final = 60.0
"""Longer than a request waits for its other limit: what it is about to ask is not forgotten."""
_DEMAND_SECONDS: Final = 1.0
_NO_WINDOW: Final = datetime.min.replace(tzinfo=UTC)


class Exhausted(Exception):
    """The limit's window has nothing left."""


class Allowance:
    """The requests of one limit that this replica may still let in. Belongs to one event loop."""

    __slots__ = (
        "_asker",
        "_demand_before",
        "_grant_max",
        "_limited",
        "_refused_until",
        "_seen",
        "_seen_at_sweep",
        "_seen_in_all",
        "_seen_since",
        "_used",
        "_waiting",
        "_window_start",
        "_windows",
        "label",
        "left",
        "limit",
        "policy",
        "until",
    )

    def __init__(
        self, windows: RateWindows, limited: Limited, label: str, limit: RateLimit
    ) -> None:
        self.limit = limit
        self.label = f'"{label}"'.encode()
        self.policy = b"%s;q=%d;w=%d" % (self.label, limit.requests, limit.seconds)
        self.left = 0
        self.until = 0.0
        self._windows = windows
        self._limited = limited
        self._grant_max = max(1, limit.requests // GRANT_SHARE)
        self._used = 0
        self._window_start = _NO_WINDOW
        self._refused_until = 0.0
        self._waiting: deque[asyncio.Future[datetime | None]] = deque()
        self._asker: asyncio.Task[None] | None = None
        self._demand_before = 0.0
        self._seen = 0
        self._seen_since = time.monotonic()
        self._seen_in_all = 0
        self._seen_at_sweep = 0

    def has(self, now: float) -> bool:
        return self.left > 0 and now < self.until

    def refuses(self, now: float) -> bool:
        """Whether the window is known to have nothing left."""
        return now < self._refused_until and not self.has(now)

    def remaining(self) -> int:
        """Of the whole limit, as far as this replica knows."""
        return max(0, self.limit.requests - self._used + self.left)

    def reset_seconds(self, now: float) -> int:
        """Until the window ends."""
        return max(0, math.ceil(self.until - now))

    def take_now(self) -> None:
        """Take one of those that it ``has``."""
        self.left -= 1
        self._seen += 1

    async def take(self) -> datetime:
        """Take one, asking the database if there is none here; says of which window it is.

        Raises Exhausted, or DatabaseUnavailable.
        """
        now = time.monotonic()
        if self.has(now):
            self.take_now()
            return self._window_start
        if self.refuses(now):
            raise Exhausted
        self._seen += 1
        turn: asyncio.Future[datetime | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        if self._asker is None:
            self._asker = asyncio.create_task(self._serve())
        try:
            window_start = await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.put_back(turn.result())
            raise
        if window_start is None:
            raise Exhausted
        return window_start

    def put_back(self, window_start: datetime | None) -> None:
        """Return one that was taken and not used."""
        if window_start == self._window_start:
            self.left += 1

    def idle(self, now: float) -> bool:
        """Whether it can be forgotten: its window is over, and nobody has asked for long."""
        return (
            self._asker is None
            and now >= self.until
            and now - self._seen_since >= FORGOTTEN_SECONDS
        )

    def spare(self, now: float) -> Leftover | None:
        """Take out what is more than was called for since this was last asked."""
        wanted = self._seen_in_all + self._seen - self._seen_at_sweep
        self._seen_at_sweep += wanted
        return self._take_out(max(0, self.left - wanted), now)

    def everything(self, now: float) -> Leftover | None:
        """Take out all there is."""
        return self._take_out(self.left, now)

    def _take_out(self, requests: int, now: float) -> Leftover | None:
        if now >= self.until:
            self.left = 0
            return None
        if requests == 0:
            return None
        self.left -= requests
        self._used -= requests
        return Leftover(self._limited, self._window_start, requests)

    async def _serve(self) -> None:
        """Ask until nobody waits."""
        try:
            while self._waiting:
                now = time.monotonic()
                while self._waiting and self.has(now):
                    self._give_one()
                waiting = len(self._waiting)
                if waiting:
                    await self._ask(waiting, now)
        finally:
            self._asker = None

    async def _ask(self, waiting: int, now: float) -> None:
        wanted = max(waiting, min(self._grant_max, round(self._demand(now))))
        try:
            grant = await self._windows.take(
                RateRequest(self._limited, self.limit.requests, wanted)
            )
        except BaseException as error:
            self._fail(waiting, error)
            if isinstance(error, (DatabaseUnavailable, OutcomeUnknown)):
                return
            raise
        self._accept(grant, sent_at=now)
        for _ in range(min(waiting, grant.granted)):
            self._give_one()
        # A window that ended meanwhile refuses nobody: the next one is asked.
        if grant.granted < wanted and grant.seconds_left > 0:
            self._refused_until = min(self.until, time.monotonic() + REFUSAL_SECONDS_MAX)
            while self._waiting and self.left == 0:
                turn = self._waiting.popleft()
                if not turn.done():
                    turn.set_result(None)

    def _give_one(self) -> None:
        turn = self._waiting.popleft()
        if not turn.done():  # else its caller has left
            self.left -= 1
            turn.set_result(self._window_start)

    def _accept(self, grant: RateGrant, *, sent_at: float) -> None:
        if grant.window_start != self._window_start:
            self._window_start = grant.window_start
            self.left = 0
            self.until = 0.0
        self.left += grant.granted
        self.until = max(self.until, sent_at + grant.seconds_left)
        self._used = grant.used

    def _fail(self, waiting: int, error: BaseException) -> None:
        told = error
        if isinstance(error, OutcomeUnknown):
            # What may have been done is a count. Of what the caller wants, nothing was.
            told = DatabaseUnavailable(str(error))
        for _ in range(waiting):
            turn = self._waiting.popleft()
            if turn.done():
                continue
            if isinstance(told, Exception):
                turn.set_exception(told)
            else:
                turn.cancel()

    def _demand(self, now: float) -> float:
        """How many requests came in the last second, or come in one."""
        elapsed = now - self._seen_since
        if elapsed >= _DEMAND_SECONDS:
            self._demand_before = self._seen / elapsed
            self._seen_in_all += self._seen
            self._seen = 0
            self._seen_since = now
        return max(self._demand_before, float(self._seen))


_log = logging.getLogger(__name__)

SWEEP_SECONDS: Final = 1.0
PRUNE_SECONDS: Final = 3_600.0

_CALLERS_REMEMBERED_MAX: Final = 10_000

_Key = tuple[str, str, int, int]


@dataclass(frozen=True, slots=True)
class _Limits:
    """What holds for a caller; its key's limit first."""

    caller: Principal
    allowances: Sequence[Allowance]
    policy: bytes


class RateLimiter:
    """The rate limits of all callers, on this replica. The line stays the caller's to close."""

    def __init__(self, db: Connection) -> None:
        self._windows = RateWindows(db)
        self._allowances: dict[_Key, Allowance] = {}
        self._limits: dict[int, _Limits] = {}
        self._sweeper: asyncio.Task[None] | None = None
        self._pruned_at = time.monotonic()

    def admit_now(self, principal: Principal) -> RawHeaders | None:
        """Let a request in without asking the database, if that can be: gives its answer's headers.

        None means that ``admit`` has to be asked.
        """
        if principal.key_rate is None and principal.org_rate is None:
            return ()
        limits = self._of(principal)
        now = time.monotonic()
        for allowance in limits.allowances:
            if not allowance.has(now):
                return None
        for allowance in limits.allowances:
            allowance.take_now()
        return _headers(limits, _tighter(limits), now)

    async def admit(self, principal: Principal) -> RawHeaders:
        """Let a request in, and give its answer's headers, or raise RateLimited.

        A request that one limit refuses uses nothing of the other. Raises DatabaseUnavailable if
        the database is away and nothing is left of what it granted before.
        """
        if principal.key_rate is None and principal.org_rate is None:
            return ()
        limits = self._of(principal)
        now = time.monotonic()
        for allowance in limits.allowances:
            if allowance.refuses(now):
                raise _refusal(limits, allowance)
        taken: list[tuple[Allowance, datetime]] = []
        try:
            for allowance in limits.allowances:
                taken.append((allowance, await _take(allowance, limits)))  # noqa: PERF401
        except BaseException:
            for allowance, window_start in taken:
                allowance.put_back(window_start)
            raise
        return _headers(limits, _tighter(limits), time.monotonic())

    async def tick(self) -> None:
        """Give back what was not called for since the last tick, and forget what is not in use."""
        now = time.monotonic()
        await self._give_back(allowance.spare(now) for allowance in self._allowances.values())
        for key in [key for key, each in self._allowances.items() if each.idle(now)]:
            del self._allowances[key]
        self._limits.clear()  # they may name what was forgotten
        if now - self._pruned_at >= PRUNE_SECONDS:
            self._pruned_at = now
            await self._windows.prune()

    async def close(self) -> None:
        """Give back everything that is left. Requests may still be admitted, one at a time."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
        now = time.monotonic()
        try:
            await self._give_back(each.everything(now) for each in self._allowances.values())
        except (DatabaseUnavailable, OutcomeUnknown) as error:
            _log.info("could not give back what is left of rate limits: %s", error)

    def _of(self, principal: Principal) -> _Limits:
        # By identity, because a look-up by value costs more than all the rest: credentials are
        # cached, so a caller comes as the same object again. It is kept here, so that no other
        # object can have its address.
        limits = self._limits.get(id(principal))
        if limits is None:
            limits = self._find(principal)
            if len(self._limits) >= _CALLERS_REMEMBERED_MAX:
                self._limits.clear()
            self._limits[id(principal)] = limits
        return limits

    def _find(self, principal: Principal) -> _Limits:
        org, key_id = principal.org, principal.key_id
        allowances = []
        if principal.key_rate is not None:
            name = f"owner:{principal.owner}" if key_id is None else f"key:{key_id}"
            allowances.append(self._allowance(org, name, "key", principal.key_rate))
        if principal.org_rate is not None:
            allowances.append(self._allowance(org, "org", "org", principal.org_rate))
        return _Limits(principal, allowances, b", ".join([each.policy for each in allowances]))

    def _allowance(self, org: str, name: str, label: str, limit: RateLimit) -> Allowance:
        # A limit that is being changed is known under both values for a moment: one row, two of
        # these, and the row is the one that counts.
        key = (org, name, limit.requests, limit.seconds)
        found = self._allowances.get(key)
        if found is None:
            found = Allowance(self._windows, Limited(org, name, limit.seconds), label, limit)
            self._allowances[key] = found
            if self._sweeper is None or self._sweeper.done():
                self._sweeper = asyncio.create_task(self._sweep(), name="rate limits")
        return found

    async def _sweep(self) -> None:
        while self._allowances:
            await asyncio.sleep(SWEEP_SECONDS)
            try:
                await self.tick()
            except (DatabaseUnavailable, OutcomeUnknown) as error:
                _log.info("rate limits are not given back: %s", error)
            except Exception:  # noqa: BLE001 - a defect here must not end the sweeping
                _log.exception("sweeping the rate limits failed")

    async def _give_back(self, spare: Iterable[Leftover | None]) -> None:
        await self._windows.give_back([each for each in spare if each is not None])


async def _take(allowance: Allowance, limits: _Limits) -> datetime:
    try:
        return await allowance.take()
    except Exhausted:
        raise _refusal(limits, allowance) from None


def _tighter(limits: _Limits) -> Allowance:
    allowances = limits.allowances
    if len(allowances) == 1 or allowances[0].remaining() <= allowances[1].remaining():
        return allowances[0]
    return allowances[1]


def _refusal(limits: _Limits, refusing: Allowance) -> RateLimited:
    now = time.monotonic()
    metrics.record_bound_met("rate")
    return RateLimited(max(1, refusing.reset_seconds(now)), _headers(limits, refusing, now))


def _headers(limits: _Limits, told: Allowance, now: float) -> RawHeaders:
    """The widespread three of the limit that is ``told``, and the two of the IETF's draft."""
    remaining, reset = told.remaining(), told.reset_seconds(now)
    return (
        (b"ratelimit-limit", b"%d" % told.limit.requests),
        (b"ratelimit-remaining", b"%d" % remaining),
        (b"ratelimit-reset", b"%d" % reset),
        (b"ratelimit", b"%s;r=%d;t=%d" % (told.label, remaining, reset)),
        (b"ratelimit-policy", limits.policy),
    )
