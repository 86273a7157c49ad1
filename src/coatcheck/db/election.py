"""Elects one of many processes by a session's advisory lock."""

from __future__ import annotations

import hashlib

from coatcheck.db.connection import Connection, RawConnection

_SILENT_SECONDS_MAX = 10.0
"""Upkeep asks something every second or so. One that was frozen (a laptop that sleeps), or cut off
without a word, would keep its locks for as long as its session lasts: hours."""
_STATEMENT_SECONDS_MAX = 35.0
"""To the server, one that was frozen between a statement's preparation and its execution is not
silent but in the middle of it. No statement is waited for as long as this."""


def session_that_ends_if_silent(seconds: float | None = None) -> dict[str, str]:
    """The server settings of a line that elections are held on: who falls silent loses them."""
    return {
        "idle_session_timeout": f"{(seconds or _SILENT_SECONDS_MAX) * 1e3:.0f}",
        "transaction_timeout": f"{_STATEMENT_SECONDS_MAX * 1e3:.0f}",
    }


class Election:
    """Whether this process is the one that does a named thing."""

    def __init__(self, db: Connection, name: str) -> None:
        self._db = db
        self._key = int.from_bytes(
            hashlib.blake2b(f"coatcheck {name}".encode(), digest_size=8).digest(), signed=True
        )
        self._held_on: RawConnection | None = None

    async def won(self) -> bool:
        """Take the lock, or find that it is still held on the same connection, which is heard of
        by that: see ``session_that_ends_if_silent``."""

        async def try_lock(connection: RawConnection) -> bool:
            if self._held_on is connection:
                await connection.execute("SELECT")
                return True
            won: bool = await connection.fetchval("SELECT pg_try_advisory_lock($1)", self._key)
            self._held_on = connection if won else None
            return won

        return await self._db.run(try_lock)
