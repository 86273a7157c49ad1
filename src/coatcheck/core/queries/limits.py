"""Limits at the claim: on what is held at once, and on how fast a run starts. One method a file of
``sql/limits``.

Whoever changes one tells the workers afterwards: READY, with an empty payload. A worker that has
not heard it finds out within the interval of its poll.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from coatcheck.core.sql import sql
from coatcheck.db.connection import Connection, RawConnection
from coatcheck.domain.job import ConcurrencyLimit


async def set_limit(db: Connection, limit: ConcurrencyLimit) -> None:
    await db.fetch(sql("limits/set"), limit.org, limit.scope, limit.name, limit.held_max)


async def clear_limit(db: Connection, org: str, scope: str, name: str) -> bool:
    return bool(await db.fetch(sql("limits/clear"), org, scope, name))


async def list_limits(db: Connection, org: str) -> list[ConcurrencyLimit]:
    return [ConcurrencyLimit(*row) for row in await db.fetch(sql("limits/list"), org)]


class LimitSharing(NamedTuple):
    """What claims have to look out for: any limit at all, and more than one organisation."""

    limited: bool
    shared: bool


async def sharing(db: Connection) -> LimitSharing:
    rows = await db.fetch(sql("limits/any"))
    return LimitSharing(*rows[0])


async def declare_limits(db: Connection, limits: Mapping[str, int | None]) -> None:
    """The limits that code declares for its endpoints; None for an endpoint without one."""
    await db.fetch(sql("limits/declare"), list(limits), list(limits.values()))


async def set_run_limits(
    connection: RawConnection,
    org: str,
    run: UUID,
    *,
    concurrency: int | None,
    per_second: float | None,
    key_per_second: float | None,
) -> None:
    """What holds for all tasks of a run, in the caller's transaction. All None takes it away.

    ``concurrency`` tasks at once, ``per_second`` starts of all of them and ``key_per_second`` of
    each of its flows. Rates may be from 0.001 to 100,000.
    """
    limits = (concurrency, per_second, key_per_second)
    if limits == (None, None, None):
        await connection.execute(sql("limits/clear_run_limits"), org, run)
    else:
        await connection.execute(sql("limits/set_run_limits"), org, run, *limits)


async def stop_run(connection: RawConnection, org: str, run: UUID) -> None:
    """No task of the run is claimed from now on, in the caller's transaction."""
    await connection.execute(sql("limits/stop_run"), org, run)
