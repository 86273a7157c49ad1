"""Waiting until PostgreSQL itself says that somebody waits for a lock."""

from __future__ import annotations

import asyncpg

from tests.db.edge_guard import AsyncpgConnection
from tests.waiting import eventually_async

_BLOCKED = """
    SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = $1 AND wait_event_type = 'Lock'
      AND pid <> ALL ($2::integer[])
"""


async def until_blocked(
    connection: AsyncpgConnection, application: str, *, other_than: tuple[int, ...] = ()
) -> int:
    """The process id of the first connection named ``application`` that waits for a lock."""

    async def look() -> int | None:
        # Inside a transaction, activity is as it was when first looked at.
        await connection.execute("SELECT pg_stat_clear_snapshot()")
        pid: int | None = await connection.fetchval(_BLOCKED, application, list(other_than))
        return pid

    pid: int = await eventually_async(look, f"{application!r} waits for a lock")
    return pid


async def terminate(connection: AsyncpgConnection, pid: int) -> None:
    """End a connection from the server's side, as an administrator or a crash would."""
    assert await connection.fetchval("SELECT pg_terminate_backend($1)", pid)


async def processes_named(connection: AsyncpgConnection, application: str) -> list[int]:
    rows: list[asyncpg.Record] = await connection.fetch(
        "SELECT pid FROM pg_stat_activity "
        "WHERE datname = current_database() AND application_name = $1",
        application,
    )
    return [row["pid"] for row in rows]
