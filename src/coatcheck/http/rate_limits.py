"""Rate limits per credential and per organisation, exact over any number of replicas.

The database counts requests in windows of its own clock (``rates/take``). A statement for each
request would cost too much under a high limit. So a replica takes a grant of several requests from
the database: as many as it has lately needed, and at most a fiftieth of the limit. It returns what
it does not use within seconds. Under limits below 100, a grant is one request. See
docs/explanation/rate-limits.md.
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
from coatcheck.domain.bounds import CountedBound
from coatcheck.domain.errors import DatabaseUnavailable, OutcomeUnknown, RateLimited
from coatcheck.domain.tenants import Principal, RateLimit
from coatcheck.http.response import RawHeaders
from coatcheck.telemetry import metrics

_log = logging.getLogger(__name__)

GRANT_SHARE: Final = 50
"""The part of a limit that a replica takes in advance, at most: a fiftieth."""
REFUSAL_SECONDS_MAX: Final = 1.0
"""How long a used-up limit is not checked again. Another replica may return requests meanwhile."""
FORGOTTEN_SECONDS: Final = 60.0
"""How long an unused allowance is kept. A request waits for its other limit for a shorter time, so
no allowance is dropped that a request is about to use."""
_DEMAND_SECONDS: Final = 1.0
_NO_WINDOW: Final = datetime.min.replace(tzinfo=UTC)


class Exhausted(Exception):
    """The limit's window has no requests left."""


class Allowance:
    """The requests of one limit that this replica may still admit. Belongs to one event loop."""

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
        """Whether the window is known to be used up."""
        return now < self._refused_until and not self.has(now)

    def remaining(self) -> int:
        """The requests left of the whole limit, as far as this replica knows."""
        return max(0, self.limit.requests - self._used + self.left)

    def reset_seconds(self, now: float) -> int:
        """The seconds until the window ends."""
        return max(0, math.ceil(self.until - now))

    def take_now(self) -> None:
        """Use one request, after ``has`` was true."""
        self.left -= 1
        self._seen += 1

    async def take(self) -> datetime:
        """Use one request, from the database if this replica has none left. Returns its window.

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
        """Return a request that was taken and not used."""
        if window_start == self._window_start:
            self.left += 1

    def idle(self, now: float) -> bool:
        """Whether it can be dropped: its window is over, and it was not used for long."""
        return (
            self._asker is None
            and now >= self.until
            and now - self._seen_since >= FORGOTTEN_SECONDS
        )

    def spare(self, now: float) -> Leftover | None:
        """Remove the requests beyond those that were used since the last call."""
        used = self._seen_in_all + self._seen - self._seen_at_sweep
        self._seen_at_sweep += used
        return self._take_out(max(0, self.left - used), now)

    def everything(self, now: float) -> Leftover | None:
        """Remove all requests that are left."""
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
        """Ask the database until no request waits."""
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
        requested = max(waiting, min(self._grant_max, round(self._demand(now))))
        try:
            grant = await self._windows.take(
                RateRequest(self._limited, self.limit.requests, requested)
            )
        except BaseException as error:
            self._fail(waiting, error)
            if isinstance(error, (DatabaseUnavailable, OutcomeUnknown)):
                return
            raise
        self._accept(grant, sent_at=now)
        for _ in range(min(waiting, grant.granted)):
            self._give_one()
        # If the window has ended meanwhile, nothing is refused: the next window is asked.
        if grant.granted < requested and grant.seconds_left > 0:
            self._refused_until = min(self.until, time.monotonic() + REFUSAL_SECONDS_MAX)
            while self._waiting and self.left == 0:
                turn = self._waiting.popleft()
                if not turn.done():
                    turn.set_result(None)

    def _give_one(self) -> None:
        turn = self._waiting.popleft()
        if not turn.done():  # else its caller has disconnected
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
        shown = error
        if isinstance(error, OutcomeUnknown):
            # Only the count is in doubt. The caller's request itself had no effect yet.
            shown = DatabaseUnavailable(str(error))
        for _ in range(waiting):
            turn = self._waiting.popleft()
            if turn.done():
                continue
            if isinstance(shown, Exception):
                turn.set_exception(shown)
            else:
                turn.cancel()

    def _demand(self, now: float) -> float:
        """The requests a second: the previous rate, or those of this second if that is higher."""
        elapsed = now - self._seen_since
        if elapsed >= _DEMAND_SECONDS:
            self._demand_before = self._seen / elapsed
            self._seen_in_all += self._seen
            self._seen = 0
            self._seen_since = now
        return max(self._demand_before, float(self._seen))


SWEEP_SECONDS: Final = 1.0
PRUNE_SECONDS: Final = 3_600.0

_CALLERS_REMEMBERED_MAX: Final = 10_000

_Key = tuple[str, str, int, int]


@dataclass(frozen=True, slots=True)
class _Limits:
    """The limits of a caller; that of its key comes first."""

    caller: Principal
    allowances: Sequence[Allowance]
    policy: bytes


class RateLimiter:
    """The rate limits of all callers, on this replica. The caller closes ``db``."""

    def __init__(self, db: Connection) -> None:
        self._windows = RateWindows(db)
        self._allowances: dict[_Key, Allowance] = {}
        self._limits: dict[int, _Limits] = {}
        self._sweeper: asyncio.Task[None] | None = None
        self._pruned_at = time.monotonic()

    def admit_now(self, principal: Principal) -> RawHeaders | None:
        """Admit a request without the database, if possible. Returns headers for its response.

        None means that ``admit`` has to be called.
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
        """Admit a request and return headers for its response, or raise RateLimited.

        A request that one limit refuses uses nothing of the other. Raises DatabaseUnavailable if
        the database is unavailable and earlier grants are used up.
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
        """Return requests that were not used since the last tick, and drop unused allowances."""
        now = time.monotonic()
        await self._give_back(allowance.spare(now) for allowance in self._allowances.values())
        for key in [key for key, each in self._allowances.items() if each.idle(now)]:
            del self._allowances[key]
        self._limits.clear()  # they may refer to allowances that were dropped
        if now - self._pruned_at >= PRUNE_SECONDS:
            self._pruned_at = now
            await self._windows.prune()

    async def close(self) -> None:
        """Return all requests that are left. Requests may still be admitted, one at a time."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
        now = time.monotonic()
        try:
            await self._give_back(each.everything(now) for each in self._allowances.values())
        except (DatabaseUnavailable, OutcomeUnknown) as error:
            _log.info("cannot return the unused part of rate limits: %s", error)

    def _of(self, principal: Principal) -> _Limits:
        # By identity, because a look-up by value costs more than all the rest. Principals are
        # cached, so a caller comes as the same object again. The entry keeps the object alive, so
        # that no other object can get its id.
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
        # While a limit is being changed, there may be an allowance for both values. They share one
        # row in the database, and the row decides.
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
                _log.info("cannot return the unused part of rate limits: %s", error)
            except Exception:  # noqa: BLE001 - a defect here must not end the sweeper
                _log.exception("unexpected error in the sweeper of rate limits")

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


_RATE: Final = CountedBound(
    "rate",
    of="requests of a key, and of an organisation, in a window",
    over="deployment",
    value="none, or that of `coatcheck keys create --rate` and `coatcheck orgs limit --rate`",
    response="429 `rate_limited`, `Retry-After`",
)


def _refusal(limits: _Limits, refusing: Allowance) -> RateLimited:
    now = time.monotonic()
    metrics.record_bound_met(_RATE)
    return RateLimited(max(1, refusing.reset_seconds(now)), _headers(limits, refusing, now))


def _headers(limits: _Limits, shown: Allowance, now: float) -> RawHeaders:
    """The three widespread headers for the limit ``shown``, and the two of the IETF's draft."""
    remaining, reset = shown.remaining(), shown.reset_seconds(now)
    return (
        (b"ratelimit-limit", b"%d" % shown.limit.requests),
        (b"ratelimit-remaining", b"%d" % remaining),
        (b"ratelimit-reset", b"%d" % reset),
        (b"ratelimit", b"%s;r=%d;t=%d" % (shown.label, remaining, reset)),
        (b"ratelimit-policy", limits.policy),
    )
