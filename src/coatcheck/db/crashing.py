"""Crash points inside a transaction.

Our statements commit by themselves, so a process cannot be killed between the update and the commit
from outside. While a test has such a point armed, the statement runs in an explicit transaction and
the process dies before its COMMIT; otherwise this adds nothing.

A statement that returns rows dies only if it returned some, which shows that it did something.
"""

from __future__ import annotations

from typing import Any

import asyncpg

from coatcheck.crash import crash_point, is_armed
from coatcheck.db.connection import Connection, RawConnection
from coatcheck.db.queries import Queries


async def query_or_die(
    db: Connection,
    point: str,
    queries: Queries,
    name: str,
    /,
    *,
    answers_rows: bool = True,
    **arguments: Any,
) -> list[asyncpg.Record]:
    """Run a named statement, as ``Queries.fetch`` does; die before its commit if ``point`` is
    armed."""
    if not is_armed(point):
        return await queries.fetch(db, name, **arguments)
    text, values = queries.bound(name, **arguments)
    return await fetch_or_die(db, point, text, *values, answers_rows=answers_rows)


async def fetch_or_die(
    db: Connection, point: str, query: str, *arguments: Any, answers_rows: bool = True
) -> list[asyncpg.Record]:
    """Run the text of a statement, once; die before its commit if ``point`` is armed."""
    if not is_armed(point):
        return await db.fetch(query, *arguments)

    async def dying(connection: RawConnection) -> list[asyncpg.Record]:
        async with connection.transaction():
            rows = await connection.fetch(query, *arguments)
            if rows or not answers_rows:
                crash_point(point)
            return rows

    return await db.run(dying)
