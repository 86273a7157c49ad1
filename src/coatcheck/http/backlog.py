"""Keeps an organisation from queueing without bound: over its limit, new jobs are refused.

Jobs that are submitted together need room for all of them. Where their number is not known before
they are stored, they are stored as far as there is room.

The backlog is counted by the database, at most once a second for each organisation; in between,
what this replica let in is added to it. So the limit is met to within what the other replicas let
in during that second, which is what a bound on a backlog needs, and a submit seldom pays for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from coatcheck.domain.errors import QueueFull
from coatcheck.domain.tenants import Principal
from coatcheck.telemetry import metrics

COUNT_SECONDS: Final = 1.0
"""How long a count is good for."""
_RETRY_AFTER_SECONDS: Final = 5
_ORGS_REMEMBERED_MAX: Final = 10_000

Count = Callable[[str, int], Awaitable[int]]
"""The waiting jobs of an organisation; need not count beyond the number."""


@dataclass(slots=True)
class _Known:
    jobs: int
    until: float


class Backlog:
    """The backlog limits of all organisations, on this replica."""

    def __init__(self, count: Count) -> None:
        self._count = count
        self._known: dict[str, _Known] = {}
        self._counting: dict[str, asyncio.Task[None]] = {}

    async def check(self, principal: Principal, jobs: int = 1) -> None:
        """Let so many more jobs in, all of them, or raise QueueFull. With 0, say whether there is
        room for one."""
        jobs_max = principal.org_backlog_max
        if jobs_max is None:
            return
        org = principal.org
        known = self._known.get(org)
        while known is None or known.until <= time.monotonic():
            await self._recount(org, jobs_max)
            known = self._known.get(org)
        if known.jobs + max(jobs, 1) > jobs_max:
            metrics.record_bound_met("backlog")
            if jobs <= 1:
                raise QueueFull(_RETRY_AFTER_SECONDS)
            raise QueueFull(
                _RETRY_AFTER_SECONDS,
                f"The organisation may have {jobs_max} jobs waiting, and {jobs} more are too many "
                "for now; see Retry-After, or submit fewer tasks at a time.",
            )
        known.jobs += jobs

    async def _recount(self, org: str, jobs_max: int) -> None:
        """Count once for everybody who waits for it."""
        counting = self._counting.get(org)
        if counting is None:
            counting = asyncio.create_task(self._remember(org, jobs_max))
            self._counting[org] = counting
            counting.add_done_callback(lambda _: self._counting.pop(org))
        await asyncio.shield(counting)

    async def _remember(self, org: str, jobs_max: int) -> None:
        jobs = await self._count(org, jobs_max)
        if len(self._known) >= _ORGS_REMEMBERED_MAX:
            self._known.clear()
        self._known[org] = _Known(jobs, time.monotonic() + COUNT_SECONDS)
