"""What one replica holds of one rate limit: requests that the database has counted already.

Each is good for one request within the window it was taken from. How long that window lasts is
known only to the database's clock, so it is taken to end as early as it may: so many seconds after
the statement was sent, not after it was answered. Requests that waited for the statement are let in
by its answer, however late it comes: they were counted while the window lasted.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from datetime import UTC, datetime
from typing import Final

from coatcheck.core.queries.rates import Ask, Grant, Leftover, Limited, RateWindows
from coatcheck.domain.errors import DatabaseUnavailable, OutcomeUnknown
from coatcheck.domain.identity import RateLimit

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
            grant = await self._windows.take(Ask(self._limited, self.limit.requests, wanted))
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

    def _accept(self, grant: Grant, *, sent_at: float) -> None:
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
