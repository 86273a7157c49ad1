"""Queries about limits that claims obey: how many jobs are held at once, how fast a run starts.

A caller that changes a limit notifies the workers afterwards: READY, with an empty payload. A
worker that misses it learns of the change at its next poll.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from coatcheck.core.queries import sql
from coatcheck.db.connection import Connection, RawConnection
from coatcheck.domain.job import ConcurrencyLimit


async def set_limit(db: Connection, limit: ConcurrencyLimit) -> None:
    await sql.fetch(
        db, "limits/set", org=limit.org, scope=limit.scope, name=limit.name, held_max=limit.held_max
    )


async def clear_limit(db: Connection, org: str, scope: str, name: str) -> bool:
    return bool(await sql.fetch(db, "limits/clear", org=org, scope=scope, name=name))


async def list_limits(db: Connection, org: str) -> list[ConcurrencyLimit]:
    return [ConcurrencyLimit(*row) for row in await sql.fetch(db, "limits/list", org=org)]


class LimitSharing(NamedTuple):
    """Whether there is any limit, and more than one organisation: claims need to know."""

    limited: bool
    shared: bool


async def sharing(db: Connection) -> LimitSharing:
    rows = await sql.fetch(db, "limits/any")
    return LimitSharing(*rows[0])


async def declare_limits(db: Connection, limits: Mapping[str, int | None]) -> None:
    """Set the limits that code declares for its endpoints; None for an endpoint without one."""
    await sql.fetch(db, "limits/declare", endpoints=list(limits), limits=list(limits.values()))


async def set_run_limits(
    connection: RawConnection,
    org: str,
    run: UUID,
    *,
    concurrency: int | None,
    per_second: float | None,
    key_per_second: float | None,
) -> None:
    """Set the limits on all tasks of a run, in the caller's transaction. All None removes them.

    ``concurrency`` tasks at once, ``per_second`` starts in all, and ``key_per_second`` starts of
    each of its flows. Rates range from 0.001 to 100,000.
    """
    if concurrency is None and per_second is None and key_per_second is None:
        await sql.fetch(connection, "limits/clear_run_limits", org=org, run=run)
    else:
        await sql.fetch(
            connection,
            "limits/set_run_limits",
            org=org,
            run=run,
            held_max=concurrency,
            per_second=per_second,
            key_per_second=key_per_second,
        )


async def stop_run(connection: RawConnection, org: str, run: UUID) -> None:
    """Stop claims of the run's tasks from now on, in the caller's transaction."""
    await sql.fetch(connection, "limits/stop_run", org=org, run=run)
