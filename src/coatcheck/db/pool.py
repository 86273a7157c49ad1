"""A bounded pool of connections for statements that need no connection of their own.

Each component has a ``PooledConnection``. It runs the component's statements one after another, as
a connection would, but borrows a session of the pool for each: a component that waits for a lock
occupies one session, never the pool. Those that may take long (``is_long``) leave a part of the
pool to the others. Whoever waits is served in order, and gives up after as long as one of its
statements may take.

A session keeps the settings of its last borrower. A component gets an idle session with its own
settings if there is one; otherwise a new one, or, if the pool is full, one that is switched. The
switch also discards the session's plans: PostgreSQL would reuse a plan that was made under other
settings.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from coatcheck.db.connection import (
    STATEMENT_SECONDS_MAX,
    Connection,
    RawConnection,
    close_gently,
    configure,
    open_connection,
)
from coatcheck.db.errors import translate
from coatcheck.domain.bounds import CountedBound
from coatcheck.domain.errors import DatabaseUnavailable, OutcomeUnknown
from coatcheck.domain.limits import (
    ENGINE_CONNECTIONS_MAX,
    SERVER_CONNECTIONS_MAX,
    WORKER_CONNECTIONS_MAX,
)
from coatcheck.telemetry import metrics

Result = TypeVar("Result")

APPLICATION_NAME: Final = "pool"
_KEPT_FROM_LONG_STATEMENTS: Final = 2
_ROLLBACK_SECONDS_MAX: Final = 2.0
IDLE_SECONDS_MAX: Final = 60.0
_CONNECTIONS: Final = CountedBound(
    "database_pool",
    of="connections to PostgreSQL; those of its pool are shared by everything that "
    "has none of its own ([how many](../how-to/operate-postgresql.md#connections))",
    over="process",
    value=f"{SERVER_CONNECTIONS_MAX} of a server, {WORKER_CONNECTIONS_MAX} of a worker, "
    f"{ENGINE_CONNECTIONS_MAX} of an engine",
    response="waits for a turn, in order; after 30 s 503 `database_unavailable`, `Retry-After`",
)


@dataclass(slots=True, eq=False)
class _Session:
    raw: RawConnection
    settings: Mapping[str, str]
    idle_since: float = 0.0


@dataclass(slots=True, eq=False)
class _Waiter:
    is_long: bool
    granted: asyncio.Future[None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class Pool:
    """At most ``size`` sessions, opened when they are needed and closed when they are idle."""

    def __init__(self, dsn: str, *, size: int) -> None:
        self.database_url = dsn
        self._size = size
        self._long_max = size - _KEPT_FROM_LONG_STATEMENTS
        self._is_closed = False
        self._lent = 0
        self._lent_long = 0
        self._idle: list[_Session] = []
        """The session that was returned last comes last, so that the others become old."""
        self._waiters: deque[_Waiter] = deque()
        self._closing: set[asyncio.Task[None]] = set()

    def connection(
        self,
        name: str,
        *,
        server_settings: Mapping[str, str] | None = None,
        statement_seconds_max: float = STATEMENT_SECONDS_MAX,
        is_long: bool = False,
    ) -> PooledConnection:
        """A connection for one component. ``is_long``: its statements may wait for locks or take
        seconds."""
        return PooledConnection(
            self,
            name=name,
            server_settings=server_settings,
            statement_seconds_max=statement_seconds_max,
            is_long=is_long,
        )

    async def close(self) -> None:
        """Close the idle sessions. One that is lent is closed when it is returned."""
        self._is_closed = True
        self._close_idle_since(time.monotonic())
        await asyncio.gather(*self._closing)

    async def borrow(self, settings: Mapping[str, str], *, is_long: bool) -> _Session:
        """Wait for a turn, and get a session with these settings."""
        await self._turn(is_long)
        try:
            return await self._session(settings)
        except BaseException:
            self._end_turn(is_long)
            raise

    def give_back(self, session: _Session, *, is_long: bool) -> None:
        """Return a session that can be used again."""
        if self._is_closed or session.raw.is_closed() or session.raw.is_in_transaction():
            self.drop(session, is_long=is_long)
            return
        session.idle_since = time.monotonic()
        self._idle.append(session)
        self._end_turn(is_long)
        self._close_idle_since(session.idle_since - IDLE_SECONDS_MAX)

    def drop(self, session: _Session, *, is_long: bool) -> None:
        """Return a session that must not be used again. Its turn ends when the server has closed
        it, so that the server never has more sessions than the pool."""
        task = asyncio.create_task(self._close(session, is_long))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def drop_broken(self, session: _Session, *, is_long: bool) -> None:
        """Return a session whose connection broke. The idle ones have probably broken as well, and
        the next borrowers must not each find that out."""
        for each in (session, *self._idle):
            each.raw.terminate()
        self._idle.clear()
        self._end_turn(is_long)

    async def _close(self, session: _Session, is_long: bool) -> None:
        try:
            await close_gently(session.raw)
        finally:
            self._end_turn(is_long)

    # Turns

    async def _turn(self, is_long: bool) -> None:
        waiter = _Waiter(is_long)
        self._waiters.append(waiter)
        self._grant_turns()
        try:
            await waiter.granted
        except asyncio.CancelledError:
            if waiter.granted.done() and not waiter.granted.cancelled():
                self._end_turn(is_long)
            elif waiter in self._waiters:  # unless a session was returned since it was cancelled
                self._waiters.remove(waiter)
            raise

    def _end_turn(self, is_long: bool) -> None:
        self._lent -= 1
        self._lent_long -= is_long
        self._grant_turns()

    def _grant_turns(self) -> None:
        """Serve those who wait, in order. Long ones that must wait do not hold up the others."""
        for waiter in tuple(self._waiters):
            if self._lent >= self._size:
                break
            if waiter.is_long and self._lent_long >= self._long_max:
                continue
            self._waiters.remove(waiter)
            if waiter.granted.cancelled():
                continue
            self._lent += 1
            self._lent_long += waiter.is_long
            waiter.granted.set_result(None)

    # Sessions

    async def _session(self, settings: Mapping[str, str]) -> _Session:
        self._idle = [each for each in self._idle if not each.raw.is_closed()]
        for session in reversed(self._idle):
            if session.settings == settings:
                self._idle.remove(session)
                return session
        if self._idle and len(self._idle) + self._lent > self._size:
            return await self._switch(self._idle.pop(0), settings)
        raw = await open_connection(
            self.database_url, name=APPLICATION_NAME, settings=settings, statement_seconds_max=None
        )
        return _Session(raw, settings)

    @staticmethod
    async def _switch(session: _Session, settings: Mapping[str, str]) -> _Session:
        """Give a session other settings."""
        unset = dict.fromkeys(session.settings.keys() - settings.keys())
        try:
            await configure(session.raw, {**unset, **settings})
            await session.raw.execute("DISCARD PLANS")
        except BaseException:
            session.raw.terminate()
            raise
        session.settings = settings
        return session

    def _close_idle_since(self, then: float) -> None:
        """Close the sessions that have been idle since ``then``."""
        while self._idle and self._idle[0].idle_since <= then:
            self._lent += 1
            self.drop(self._idle.pop(0), is_long=False)


class PooledConnection(Connection):
    """Runs the statements of one component, one after another, on sessions of a pool."""

    def __init__(
        self,
        pool: Pool,
        *,
        name: str,
        server_settings: Mapping[str, str] | None,
        statement_seconds_max: float,
        is_long: bool,
    ) -> None:
        super().__init__(
            pool.database_url,
            name=name,
            server_settings=server_settings,
            statement_seconds_max=statement_seconds_max,
        )
        self._pool = pool
        self._is_long = is_long

    async def run(self, work: Callable[[RawConnection], Awaitable[Result]]) -> Result:
        """Run ``work`` with a session. Driver errors of availability become Coatcheck's.

        Raises DatabaseUnavailable if it gets no session within the time that a statement may take.
        """
        began = time.monotonic()
        wait = asyncio.timeout(self._statement_seconds_max)
        try:
            async with wait:
                await self._turn.acquire()
                try:
                    session = await self._pool.borrow(self._settings, is_long=self._is_long)
                except BaseException:
                    self._turn.release()
                    raise
        except Exception as error:
            if isinstance(error, TimeoutError) and wait.expired():
                metrics.record_bound_met(_CONNECTIONS)
                raise DatabaseUnavailable(
                    f"no connection to PostgreSQL was free for {self._name}"
                ) from error
            known = translate(error, in_flight=False)
            if known is None:
                raise
            raise known from error
        metrics.record_pool_wait(time.monotonic() - began)
        try:
            return await self._run_on(session, work)
        finally:
            self._turn.release()

    async def close(self) -> None:
        """Nothing: the pool closes its sessions."""

    async def _run_on(
        self, session: _Session, work: Callable[[RawConnection], Awaitable[Result]]
    ) -> Result:
        limit = asyncio.timeout(self._statement_seconds_max)
        # A transaction that is cut off rolls back first, and waits for an answer. If the server is
        # gone without a word, there is none.
        rollback_limit = asyncio.get_running_loop().call_later(
            self._statement_seconds_max + _ROLLBACK_SECONDS_MAX, session.raw.terminate
        )
        try:
            async with limit:
                result = await work(session.raw)
        except Exception as error:
            known = translate(error, in_flight=True)
            if known is None:
                self._pool.give_back(session, is_long=self._is_long)
                raise
            is_broken = session.raw.is_closed() or not limit.expired()
            if isinstance(known, OutcomeUnknown) and is_broken:
                self._pool.drop_broken(session, is_long=self._is_long)
            else:
                self._pool.drop(session, is_long=self._is_long)
            raise known from error
        except BaseException:
            # Cancelled half-way: the protocol may be in the middle of a message.
            self._pool.drop(session, is_long=self._is_long)
            raise
        finally:
            rollback_limit.cancel()
        self._pool.give_back(session, is_long=self._is_long)
        return result
