"""The backlog limit: refuses new jobs of an organisation that has too many waiting jobs.

Jobs that are submitted together are admitted together or not at all. Where their number is not
known before they are stored, they are stored until the limit is reached.

The database counts the backlog, at most once a second for each organisation. In between, this
replica adds the jobs that it admits. So the limit may be exceeded by what the other replicas admit
in that second. That is exact enough for a backlog, and few submits pay for a count.
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
"""How long a count is used."""
_RETRY_AFTER_SECONDS: Final = 5
_ORGS_REMEMBERED_MAX: Final = 10_000

Count = Callable[[str, int], Awaitable[int]]
"""Counts the waiting jobs of an organisation; need not count beyond the given number."""


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
        """Admit this many jobs, or raise QueueFull. With 0, raise QueueFull unless there is room
        for one."""
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
                f"The organisation may have {jobs_max} waiting jobs, so {jobs} more do not fit "
                "now; see Retry-After, or submit fewer tasks at a time.",
            )
        known.jobs += jobs

    async def _recount(self, org: str, jobs_max: int) -> None:
        """Count once for all concurrent submits."""
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
