"""Rate limits' windows, counted by the database's clock. One method a file of ``sql/rates``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from coatcheck.core.sql import sql
from coatcheck.db.batcher import Batcher
from coatcheck.db.connection import Connection
from coatcheck.domain.errors import OutcomeUnknown

_ROWS_MAX: Final = 500


class Limited(NamedTuple):
    """Whom a limit holds for, and the length of its window."""

    org: str
    name: str
    seconds: int


@dataclass(frozen=True, slots=True)
class RateRequest:
    """So many requests wanted of a limit of so many per window."""

    limited: Limited
    requests_max: int
    wanted: int


@dataclass(frozen=True, slots=True)
class RateGrant:
    """What a limit gave: ``granted`` requests of the window that began at ``window_start``.

    ``used`` is what all replicas have taken of it, these included. ``seconds_left`` is how long the
    window lasted on when the database answered.
    """

    granted: int
    used: int
    window_start: datetime
    seconds_left: float


@dataclass(frozen=True, slots=True)
class Leftover:
    """Requests that were granted and not used."""

    limited: Limited
    window_start: datetime
    requests: int


class RateWindows:
    """Takes requests from limits: those that are asked for at the same time, in one statement."""

    def __init__(self, db: Connection) -> None:
        self._db = db
        self._asks = Batcher[RateRequest, RateGrant](self._take, rows_max=_ROWS_MAX)

    async def take(self, ask: RateRequest) -> RateGrant:
        """What the limit has left of what is wanted: perhaps nothing.

        An answer that was lost is asked for once more. What it may have granted stays used, so a
        limit can be missed by that much, and never exceeded.
        """
        try:
            return await self._asks.ask(ask)
        except OutcomeUnknown:
            return await self._asks.ask(ask)

    async def give_back(self, leftovers: Iterable[Leftover]) -> None:
        """Return what is not going to be used. What is of a window gone by is ignored."""
        summed: dict[tuple[Limited, datetime], int] = {}
        for leftover in leftovers:
            key = (leftover.limited, leftover.window_start)
            summed[key] = summed.get(key, 0) + leftover.requests
        if summed:
            rows = [(*limited, start, requests) for (limited, start), requests in summed.items()]
            await self._db.fetch(sql("rates/give_back"), *_columns(rows))

    async def prune(self) -> None:
        """Forget the limits that nobody has called under for a day."""
        await self._db.fetch(sql("rates/prune"))

    async def drain(self) -> None:
        """Wait until everything asked for has been answered."""
        await self._asks.drain()

    async def _take(self, asks: list[RateRequest]) -> Sequence[RateGrant]:
        grants: dict[int, RateGrant] = {}
        for turn in _turns(asks):
            rows = [
                (*asks[at].limited, asks[at].requests_max, asks[at].wanted) for at in turn.values()
            ]
            for row in await self._db.fetch(sql("rates/take"), *_columns(rows)):
                org, name, seconds, window_start, used, granted, seconds_left = row
                grants[turn[Limited(org, name, seconds)]] = RateGrant(
                    granted, used, window_start, seconds_left
                )
        return [grants[at] for at in range(len(asks))]


def _turns(asks: Sequence[RateRequest]) -> list[dict[Limited, int]]:
    """Where each limit's ask is; a limit's second one goes into a statement of its own.

    That is rare: while a limit is being changed, some callers are known under its old value.
    """
    turns: list[dict[Limited, int]] = []
    for at, ask in enumerate(asks):
        turn = next((turn for turn in turns if ask.limited not in turn), None)
        if turn is None:
            turn = {}
            turns.append(turn)
        turn[ask.limited] = at
    return turns


def _columns(rows: Sequence[tuple[object, ...]]) -> list[list[object]]:
    return [list(column) for column in zip(*rows, strict=True)]
