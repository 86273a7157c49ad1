"""Elects one process among many, by an advisory lock that its session holds."""

from __future__ import annotations

import hashlib

from coatcheck.db.connection import Connection, RawConnection

SILENT_SECONDS_MAX = 10.0
"""Maintenance sends a statement every second or so. A process that was frozen (a laptop that
sleeps), or cut off silently, would keep its locks for as long as its session lasts: hours."""
STATEMENT_SECONDS_MAX = 35.0
"""A process that was frozen between preparing and executing a statement is not idle for the server,
but in the middle of it. No statement is allowed to take this long."""


def session_that_ends_if_silent(seconds: float | None = None) -> dict[str, str]:
    """Server settings for the connection of an election: a silent process loses its locks."""
    return {
        "idle_session_timeout": f"{(seconds or SILENT_SECONDS_MAX) * 1e3:.0f}",
        "transaction_timeout": f"{STATEMENT_SECONDS_MAX * 1e3:.0f}",
    }


class Election:
    """Whether this process does a named task."""

    def __init__(self, db: Connection, name: str) -> None:
        self._db = db
        self._key = int.from_bytes(
            hashlib.blake2b(f"coatcheck {name}".encode(), digest_size=8).digest(), signed=True
        )
        self._held_on: RawConnection | None = None

    async def won(self) -> bool:
        """Take the lock, or check that the same connection still holds it. The check also keeps the
        session alive: see ``session_that_ends_if_silent``."""

        async def try_lock(connection: RawConnection) -> bool:
            if self._held_on is connection:
                await connection.execute("SELECT")
                return True
            won: bool = await connection.fetchval("SELECT pg_try_advisory_lock($1)", self._key)
            self._held_on = connection if won else None
            return won

        return await self._db.run(try_lock)
