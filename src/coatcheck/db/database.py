"""All connections of a process to its database.

A process makes one ``Database`` and hands it to its components. What is in a hurry has a connection
of its own: submitting, reading, a worker's exchange, claims and heartbeats, the elections and
LISTEN. All workers of a process share these, and so do all that listen or are elected. Everything
else shares a bounded pool. All are opened on first use.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Self

from coatcheck.db.connection import PINNED_PLANS, STATEMENT_SECONDS_MAX, Connection
from coatcheck.db.election import session_that_ends_if_silent
from coatcheck.db.notifications import NotificationListener, Notifier
from coatcheck.db.pool import Pool, PooledConnection
from coatcheck.domain.limits import (
    ENGINE_CONNECTIONS_MAX,
    SERVER_CONNECTIONS_MAX,
    WORKER_CONNECTIONS_MAX,
)

SUBMIT_FLIGHTS: Final = 2
"""While one statement waits for the disk, the next is parsed and the last one's callers wake."""
_OF_ENGINE: Final = SUBMIT_FLIGHTS + 2
"""Submitting, reading, LISTEN."""
_OF_SERVER: Final = _OF_ENGINE + 1
"""An engine's, and the elections."""
_OF_WORKER: Final = 5
"""Exchange, claims, heartbeats, LISTEN, elections."""
_ASYNC_COMMIT: Final = {"synchronous_commit": "off"}
"""For claims, starts and heartbeats: if the server crashes before they are on disk, a claimed job
is simply queued again, and its holder's result is refused (docs/adr/0009)."""


class Database:
    """The connections of one process. A context manager; leaving it closes them."""

    def __init__(self, url: str, *, pool_size: int) -> None:
        """Use ``of_server``, ``of_worker`` or ``of_engine``: they know the size of the pool."""
        self.url = url
        self.submit = [
            Connection(url, name="submit", server_settings=PINNED_PLANS)
            for _ in range(SUBMIT_FLIGHTS)
        ]
        self.read = Connection(url, name="read", server_settings=PINNED_PLANS)
        self.exchange = Connection(url, name="worker exchange", server_settings=PINNED_PLANS)
        self.claim = Connection(
            url, name="worker claim", server_settings={**PINNED_PLANS, **_ASYNC_COMMIT}
        )
        self.heartbeat = Connection(
            url, name="worker heartbeat", server_settings={**PINNED_PLANS, **_ASYNC_COMMIT}
        )
        # Its plans are pinned: PostgreSQL might read the whole history every second, for a few
        # rows.
        self.maintenance = Connection(
            url,
            name="maintenance",
            server_settings={**PINNED_PLANS, **session_that_ends_if_silent()},
        )
        self.listener = NotificationListener(url)
        self._pool = Pool(url, size=pool_size)
        self.notifier = Notifier(self.pooled("notify", server_settings=PINNED_PLANS))

    @classmethod
    def of_server(cls, url: str) -> Self:
        """The connections of a ``coatcheck serve``: at most 12."""
        return cls(url, pool_size=SERVER_CONNECTIONS_MAX - _OF_SERVER)

    @classmethod
    def of_worker(cls, url: str) -> Self:
        """The connections of a ``coatcheck worker``, however many workers it runs: at most 10."""
        return cls(url, pool_size=WORKER_CONNECTIONS_MAX - _OF_WORKER)

    @classmethod
    def of_engine(cls, url: str) -> Self:
        """The connections of an engine in a program: at most 8."""
        return cls(url, pool_size=ENGINE_CONNECTIONS_MAX - _OF_ENGINE)

    def pooled(
        self,
        name: str,
        *,
        server_settings: Mapping[str, str] | None = None,
        statement_seconds_max: float = STATEMENT_SECONDS_MAX,
        is_long: bool = False,
    ) -> PooledConnection:
        """A connection for one component, which borrows from the pool for each statement.

        ``is_long``: statements may wait for locks or take seconds. They leave a part of the pool to
        the others.
        """
        return self._pool.connection(
            name,
            server_settings=server_settings,
            statement_seconds_max=statement_seconds_max,
            is_long=is_long,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Send the notifications that are pending, and close every connection."""
        await self.notifier.drain()
        for connection in (
            *self.submit,
            self.read,
            self.exchange,
            self.claim,
            self.heartbeat,
            self.maintenance,
        ):
            await connection.close()
        await self._pool.close()
