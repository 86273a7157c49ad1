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
"""There is work. Payload: the endpoints, comma-separated; one job (``core/ready_notification.py``);
or empty for "check everything"."""

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
    """Hears the notifications of all subscriptions of a process, on one connection."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._subscriptions: list[Subscription] = []
        self._task: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()
        self.answered_at = 0.0
        """When the server last answered, by this process's clock."""
        self.backend_pid: int | None = None
        """The connection's process at the server, once it listens."""

    def subscribe(
        self,
        handlers: Mapping[str, Callable[[str], None]],
        on_gap: Callable[[], None],
        *,
        ping_seconds: float = _PING_SECONDS,
    ) -> Subscription:
        """Call a function for each notification on each channel, once the subscription started.

        ``ping_seconds``: how often to ping; a later answer does not count as a sign of life.
        """
        return Subscription(self, handlers, on_gap, ping_seconds)

    def add(self, subscription: Subscription) -> None:
        """Listen for a subscription as well, as soon as possible."""
        self._subscriptions.append(subscription)
        self._woken.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="listen")

    async def remove(self, subscription: Subscription) -> None:
        """Listen no more for a subscription. The connection is closed with the last one."""
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)
        if self._task is not None and not self._subscriptions:
            task, self._task = self._task, None
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        failures = 0
        while True:
            try:
                connection: RawConnection = await asyncpg.connect(
                    self._dsn, timeout=5, server_settings={"application_name": "coatcheck listen"}
                )
                failures = 0
                try:
                    await self._listen(connection)
                finally:
                    self.backend_pid = None
                    connection.terminate()
            except Exception as error:  # noqa: BLE001 - a listener that ends never hears again
                if translate(error, in_flight=False) is None:
                    _log.exception("the listener failed unexpectedly; it reconnects")
                else:
                    _log.info("the listener lost its connection: %s", type(error).__name__)
            for subscription in tuple(self._subscriptions):
                subscription.lost()
            await asyncio.sleep(LISTENER_BACKOFF.delay(failures, random.random()))
            failures += 1

    async def _listen(self, connection: RawConnection) -> None:
        """Listen for all subscriptions, and ping, until the connection is closed."""
        listened: set[str] = set()
        connection.add_termination_listener(lambda _connection: self._woken.set())
        while not connection.is_closed():
            self._woken.clear()
            for subscription in tuple(self._subscriptions):
                for channel in subscription.handlers.keys() - listened:
                    await connection.add_listener(channel, self._heard)
                    listened.add(channel)
                if not subscription.is_established and subscription in self._subscriptions:
                    self.answered_at = time.monotonic()
                    subscription.established()
            self.backend_pid = connection.get_server_pid()
            try:
                async with asyncio.timeout(self._ping_seconds()):
                    await self._woken.wait()
            except TimeoutError:
                await connection.fetchval("SELECT 1", timeout=_ANSWER_SECONDS_MAX)
                self.answered_at = time.monotonic()

    def _ping_seconds(self) -> float:
        return min((each.ping_seconds for each in self._subscriptions), default=_PING_SECONDS)

    def _heard(self, _connection: object, _pid: int, channel: str, payload: object) -> None:
        loop = asyncio.get_running_loop()
        for subscription in self._subscriptions:
            handler = subscription.handlers.get(channel)
            if handler is not None:
                loop.call_soon(handler, str(payload))


class Subscription:
    """What one component wants to hear, from ``start`` to ``stop``."""

    def __init__(
        self,
        listener: NotificationListener,
        handlers: Mapping[str, Callable[[str], None]],
        on_gap: Callable[[], None],
        ping_seconds: float,
    ) -> None:
        self.handlers = handlers
        self.ping_seconds = ping_seconds
        self._listener = listener
        self._on_gap = on_gap
        self._tried = asyncio.Event()
        self._established = asyncio.Event()

    async def start(self) -> None:
        """Begin to listen; returns once it does, or after the first failure (it keeps trying)."""
        self._tried.clear()
        self._listener.add(self)
        await self._tried.wait()

    async def stop(self) -> None:
        self._established.clear()
        await self._listener.remove(self)

    @property
    def is_established(self) -> bool:
        """Whether the connection listens on all its channels, as far as is known."""
        return self._established.is_set()

    @property
    def is_listening(self) -> bool:
        """Whether every notification up to a moment ago, two ping intervals, was received."""
        silent_seconds = time.monotonic() - self._listener.answered_at
        return self.is_established and silent_seconds <= 2 * self.ping_seconds

    async def listening(self) -> None:
        """Wait until it listens."""
        await self._established.wait()

    def established(self) -> None:
        """Called by the listener when it listens on all channels."""
        self._established.set()
        self._tried.set()
        self._on_gap()

    def lost(self) -> None:
        """Called by the listener when it lost its connection, or got none."""
        self._established.clear()
        self._tried.set()
        self._on_gap()
