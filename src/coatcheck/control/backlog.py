"""Keeps an organisation from queueing without bound: over its limit, new jobs are refused.

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
from coatcheck.domain.identity import Principal

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

    async def check(self, principal: Principal) -> None:
        """Let one more job in, or raise QueueFull."""
        jobs_max = principal.org_backlog_max
        if jobs_max is None:
            return
        org = principal.org
        known = self._known.get(org)
        while known is None or known.until <= time.monotonic():
            await self._recount(org, jobs_max)
            known = self._known.get(org)
        if known.jobs >= jobs_max:
            raise QueueFull(_RETRY_AFTER_SECONDS)
        known.jobs += 1

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
