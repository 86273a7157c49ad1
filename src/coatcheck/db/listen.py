"""Hears notifications on a connection of its own, and notices when that connection has died.

A dead or half-open socket says nothing, so the listener asks the server a trivial question every
while and reconnects if no answer comes within two seconds. After a reconnect it calls ``on_gap``:
something may have been said meanwhile, and everybody should look for themselves. An answer comes
after all that was said before it, so as long as answers come in time nothing was missed.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping

import asyncpg

from coatcheck.db.connection import Connection
from coatcheck.db.errors import translate
from coatcheck.domain.retry import LISTENER_BACKOFF

_log = logging.getLogger(__name__)
_PING_SECONDS = 2.0
_ANSWER_SECONDS_MAX = 2.0


class Listener:
    """Calls a function for each notification on each channel, for as long as it runs."""

    def __init__(
        self,
        dsn: str,
        hear: Mapping[str, Callable[[str], None]],
        on_gap: Callable[[], None],
        *,
        ping_seconds: float = _PING_SECONDS,
    ) -> None:
        """``ping_seconds``: how often to ask; an answer later than that is no sign of life."""
        self._ping_seconds = ping_seconds
        self._answered_at = 0.0
        self._dsn = dsn
        self._hear = hear
        self._on_gap = on_gap
        self._task: asyncio.Task[None] | None = None
        self._listening = asyncio.Event()
        self.backend_pid: int | None = None

    async def start(self) -> None:
        """Begin to listen; returns once it does, or after the first failure (it keeps trying)."""
        first = asyncio.Event()
        self._task = asyncio.create_task(self._run(first))
        await first.wait()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    @property
    def is_listening(self) -> bool:
        """Whether all is heard that was said until a moment ago: twice the time of a ping."""
        silent_seconds = time.monotonic() - self._answered_at
        return self._listening.is_set() and silent_seconds <= 2 * self._ping_seconds

    async def listening(self) -> None:
        """Wait until notifications are heard."""
        await self._listening.wait()

    async def _run(self, first: asyncio.Event) -> None:
        failures = 0
        while True:
            try:
                connection = await self._connect()
                failures = 0
                try:
                    self._answered_at = time.monotonic()
                    self._listening.set()
                    first.set()
                    self._on_gap()
                    await self._stay(connection)
                finally:
                    self._listening.clear()
                    self.backend_pid = None
                    connection.terminate()
            except Exception as error:  # noqa: BLE001 - a listener that ends is deaf for good
                if translate(error, in_flight=False) is None:
                    _log.exception("the listener failed unexpectedly; it goes on")
                else:
                    _log.info("the listener lost its connection: %s", type(error).__name__)
            first.set()
            self._on_gap()
            await asyncio.sleep(LISTENER_BACKOFF.delay(failures, random.random()))
            failures += 1

    async def _connect(self) -> Connection:
        connection: Connection = await asyncpg.connect(
            self._dsn, timeout=5, server_settings={"application_name": "coatcheck listen"}
        )
        try:
            for channel, hear in self._hear.items():
                await connection.add_listener(channel, self._adapt(hear))
        except BaseException:
            connection.terminate()
            raise
        self.backend_pid = connection.get_server_pid()
        return connection

    @staticmethod
    def _adapt(hear: Callable[[str], None]) -> Callable[..., None]:
        def heard(_connection: object, _pid: int, _channel: str, payload: object) -> None:
            hear(str(payload))

        return heard

    async def _stay(self, connection: Connection) -> None:
        closed = asyncio.Event()
        connection.add_termination_listener(lambda _connection: closed.set())
        while not closed.is_set():
            try:
                async with asyncio.timeout(self._ping_seconds):
                    await closed.wait()
            except TimeoutError:
                await connection.fetchval("SELECT 1", timeout=_ANSWER_SECONDS_MAX)
                self._answered_at = time.monotonic()
