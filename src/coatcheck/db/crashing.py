"""Crash points inside a transaction.

Our statements commit by themselves, so a process cannot be killed between the update and the commit
from outside. While a test has such a point armed, the statement runs in an explicit transaction and
the process dies before its COMMIT; otherwise this adds nothing.
"""

from __future__ import annotations

from typing import Any

import asyncpg

from coatcheck.crash import crash_point, is_armed
from coatcheck.db.connection import Connection, RawConnection


async def fetch_or_die(
    db: Connection, point: str, query: str, *arguments: Any, answers_rows: bool = True
) -> list[asyncpg.Record]:
    """Run one statement; die before its commit if ``point`` is armed.

    A statement that returns rows dies only if it returned some, which shows that it did something.
    """
    if not is_armed(point):
        return await db.fetch(query, *arguments)

    async def in_transaction(connection: RawConnection) -> list[asyncpg.Record]:
        async with connection.transaction():
            rows = await connection.fetch(query, *arguments)
            if rows or not answers_rows:
                crash_point(point)
            return rows

    return await db.run(in_transaction)
