"""Queries that count requests in the windows of rate limits, by the database's clock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from coatcheck.core.queries import sql
from coatcheck.db.batcher import Batcher
from coatcheck.db.connection import Connection
from coatcheck.domain.errors import OutcomeUnknown

_ROWS_MAX: Final = 500


class Limited(NamedTuple):
    """The key or organisation that a limit applies to, and the length of its window."""

    org: str
    name: str
    seconds: int


@dataclass(frozen=True, slots=True)
class RateRequest:
    """A request for ``wanted`` requests from a limit of ``requests_max`` per window."""

    limited: Limited
    requests_max: int
    wanted: int


@dataclass(frozen=True, slots=True)
class RateGrant:
    """A limit's answer: ``granted`` requests of the window that began at ``window_start``.

    ``used`` is what all replicas have taken from the window, including these. ``seconds_left`` is
    the rest of the window when the database answered.
    """

    granted: int
    used: int
    window_start: datetime
    seconds_left: float


@dataclass(frozen=True, slots=True)
class Leftover:
    """Granted requests that were not used."""

    limited: Limited
    window_start: datetime
    requests: int


class RateWindows:
    """Takes requests from rate limits: calls that arrive together share a statement."""

    def __init__(self, db: Connection) -> None:
        self._db = db
        self._asks = Batcher[RateRequest, RateGrant](self._take, rows_max=_ROWS_MAX)

    async def take(self, ask: RateRequest) -> RateGrant:
        """Take what the limit has left of the wanted requests: perhaps none.

        If the answer is lost, it asks once more. Requests that the first try may have taken stay
        used, so a limit may grant fewer requests than it allows, and never more.
        """
        try:
            return await self._asks.ask(ask)
        except OutcomeUnknown:
            return await self._asks.ask(ask)

    async def give_back(self, leftovers: Iterable[Leftover]) -> None:
        """Return requests that will not be used. Those of past windows are ignored."""
        summed: dict[tuple[Limited, datetime], int] = {}
        for leftover in leftovers:
            key = (leftover.limited, leftover.window_start)
            summed[key] = summed.get(key, 0) + leftover.requests
        if summed:
            await sql.fetch(
                self._db,
                "rates/give_back",
                **_columns([limited for limited, _ in summed]),
                windows=[start for _, start in summed],
                requests=[*summed.values()],
            )

    async def prune(self) -> None:
        """Delete the windows of limits that nobody has called under for a day."""
        await sql.fetch(self._db, "rates/prune")

    async def drain(self) -> None:
        """Wait until every request has been answered."""
        await self._asks.drain()

    async def _take(self, asks: list[RateRequest]) -> Sequence[RateGrant]:
        grants: dict[int, RateGrant] = {}
        for group in _groups(asks):
            rows = await sql.fetch(
                self._db,
                "rates/take",
                **_columns([*group]),
                limits=[asks[at].requests_max for at in group.values()],
                wanted=[asks[at].wanted for at in group.values()],
            )
            for row in rows:
                org, name, seconds, window_start, used, granted, seconds_left = row
                grants[group[Limited(org, name, seconds)]] = RateGrant(
                    granted, used, window_start, seconds_left
                )
        return [grants[at] for at in range(len(asks))]


def _groups(asks: Sequence[RateRequest]) -> list[dict[Limited, int]]:
    """Groups with at most one request of each limit; a limit's second request goes into another.

    That is rare: while a limit is being changed, some callers still use its old value.
    """
    groups: list[dict[Limited, int]] = []
    for at, ask in enumerate(asks):
        group = next((group for group in groups if ask.limited not in group), None)
        if group is None:
            group = {}
            groups.append(group)
        group[ask.limited] = at
    return groups


def _columns(limited: Sequence[Limited]) -> dict[str, list[Any]]:
    return {
        "orgs": [each.org for each in limited],
        "names": [each.name for each in limited],
        "window_seconds": [each.seconds for each in limited],
    }
