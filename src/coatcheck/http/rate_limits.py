"""Rate limits per credential and per organisation, exact over any number of replicas.

The database counts, and its clock cuts the windows (sql/rates/take.sql). So that a high limit does
not cost a statement a request, a replica takes several requests at a time from it, as many as it
has lately needed and at most a fiftieth of the limit, and gives back within seconds what it does
not use; under limits below 100, that is one at a time. See docs/explanation/rate-limits.md.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from coatcheck.core.queries.rates import Leftover, Limited, RateWindows
from coatcheck.db.connection import Line
from coatcheck.domain.errors import DatabaseUnavailable, OutcomeUnknown, RateLimited
from coatcheck.domain.identity import Principal, RateLimit
from coatcheck.http.rate_allowances import Allowance, Exhausted
from coatcheck.http.response import RawHeaders
from coatcheck.telemetry import metrics

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

    def __init__(self, line: Line) -> None:
        self._windows = RateWindows(line)
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
