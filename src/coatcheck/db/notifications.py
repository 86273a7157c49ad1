"""NOTIFY and LISTEN: hints that something changed. Polling finds what a lost hint misses."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import asyncpg

from coatcheck.db.connection import Connection, RawConnection
from coatcheck.db.errors import translate
from coatcheck.domain.errors import DatabaseUnavailable, OutcomeUnknown
from coatcheck.domain.retry import LISTENER_BACKOFF

READY: Final = "coatcheck_ready"
"""There is work. Payload: the endpoints, comma-separated, or empty for "check everything"."""

CHANGED: Final = "coatcheck_changed"
"""Jobs changed. Payload: their ids as hex, comma-separated, or empty for "check everything"."""

CANCEL: Final = "coatcheck_cancel"
"""A running job is to be cancelled. Payload: its holder's boot number and the job's id as hex."""

KEYS: Final = "coatcheck_keys"
"""A credential or an organisation changed. Payload: a key's id, ``org:`` and an organisation's, or
empty for any."""

SERVICES: Final = "coatcheck_services"
"""A service changed. Payload: its organisation, a slash and its name, or empty for any."""

PAYLOAD_BYTES_MAX: Final = 7_000
"""PostgreSQL refuses payloads of 8,000 bytes."""


_log = logging.getLogger(__name__)
_PAUSE_SECONDS = 0.005


class Notifier:
    """Merges the words for each channel into one notification."""

    def __init__(self, db: Connection) -> None:
        self._db = db
        self._pending: dict[str, set[str] | None] = {}
        self._sender: asyncio.Task[None] | None = None

    def notify(self, channel: str, words: Iterable[str] | None) -> None:
        """Send ``words`` on ``channel`` soon. None, or too many words, is sent as "check
        everything".

        Never fails: polling finds what a lost notification announced.
        """
        if words is None:
            self._pending[channel] = None
        else:
            said = self._pending.setdefault(channel, set())
            if said is not None:
                said.update(words)
        if self._sender is None:
            self._sender = asyncio.create_task(self._send_pending())

    async def drain(self) -> None:
        while self._sender is not None:
            await asyncio.shield(self._sender)

    async def _send_pending(self) -> None:
        try:
            while self._pending:
                pending, self._pending = self._pending, {}
                for channel, words in pending.items():
                    payload = ",".join(words or ())
                    if len(payload.encode()) > PAYLOAD_BYTES_MAX:
                        payload = ""
                    await self._db.fetch("SELECT pg_notify($1, $2)", channel, payload)
                await asyncio.sleep(_PAUSE_SECONDS)
        except (DatabaseUnavailable, OutcomeUnknown) as error:
            self._pending = {}
            _log.info("notification not sent; polling will find the work: %s", error)
        finally:
            self._sender = None


_PING_SECONDS = 2.0
_ANSWER_SECONDS_MAX = 2.0


class NotificationListener:
    """Calls a function for each notification on each channel, for as long as it runs."""

    def __init__(
        self,
        dsn: str,
        handlers: Mapping[str, Callable[[str], None]],
        on_gap: Callable[[], None],
        *,
        ping_seconds: float = _PING_SECONDS,
    ) -> None:
        """``ping_seconds``: how often to ping; a later answer does not count as a sign of life."""
        self._ping_seconds = ping_seconds
        self._answered_at = 0.0
        self._dsn = dsn
        self._handlers = handlers
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
        """Whether every notification up to a moment ago, two ping intervals, was received."""
        silent_seconds = time.monotonic() - self._answered_at
        return self._listening.is_set() and silent_seconds <= 2 * self._ping_seconds

    async def listening(self) -> None:
        """Wait until it listens."""
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
                    await self._ping_until_closed(connection)
                finally:
                    self._listening.clear()
                    self.backend_pid = None
                    connection.terminate()
            except Exception as error:  # noqa: BLE001 - a listener that ends never hears again
                if translate(error, in_flight=False) is None:
                    _log.exception("the listener failed unexpectedly; it reconnects")
                else:
                    _log.info("the listener lost its connection: %s", type(error).__name__)
            first.set()
            self._on_gap()
            await asyncio.sleep(LISTENER_BACKOFF.delay(failures, random.random()))
            failures += 1

    async def _connect(self) -> RawConnection:
        connection: RawConnection = await asyncpg.connect(
            self._dsn, timeout=5, server_settings={"application_name": "coatcheck listen"}
        )
        try:
            for channel, handler in self._handlers.items():
                await connection.add_listener(channel, self._adapt(handler))
        except BaseException:
            connection.terminate()
            raise
        self.backend_pid = connection.get_server_pid()
        return connection

    @staticmethod
    def _adapt(handler: Callable[[str], None]) -> Callable[..., None]:
        def heard(_connection: object, _pid: int, _channel: str, payload: object) -> None:
            handler(str(payload))

        return heard

    async def _ping_until_closed(self, connection: RawConnection) -> None:
        closed = asyncio.Event()
        connection.add_termination_listener(lambda _connection: closed.set())
        while not closed.is_set():
            try:
                async with asyncio.timeout(self._ping_seconds):
                    await closed.wait()
            except TimeoutError:
                await connection.fetchval("SELECT 1", timeout=_ANSWER_SECONDS_MAX)
                self._answered_at = time.monotonic()
