"""Queries about usage: read it, roll it up.

The statements that end jobs write it; ``core/schema/0010_usage.sql`` says how.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from uuid import UUID

from coatcheck.core.queries import sql
from coatcheck.db.connection import Connection
from coatcheck.domain.usage import UsageRow


async def read(
    db: Connection, org: str, first_day: date, last_day: date, endpoint: str | None
) -> list[UsageRow]:
    """An organisation's usage by day, endpoint and flow; both days are included."""
    rows = await sql.fetch(
        db, "usage/read", org=org, first_day=first_day, last_day=last_day, endpoint=endpoint
    )
    return [UsageRow(*row) for row in rows]


async def read_hours(
    db: Connection, org: str, first_day: date, last_day: date, endpoint: str | None
) -> list[UsageRow]:
    """The same by hour, endpoint and flow, as far back as hours are kept."""
    rows = await sql.fetch(
        db, "usage/read_hours", org=org, first_day=first_day, last_day=last_day, endpoint=endpoint
    )
    return [UsageRow(*row) for row in rows]


async def prune_hours(db: Connection, kept_days: int, rows_max: int) -> int:
    """Delete expired sums of hours. Returns how many."""
    deleted: int = await sql.value(db, "usage/prune_hours", keep_days=kept_days, rows_max=rows_max)
    return deleted


@dataclass(frozen=True, slots=True)
class RolledUp:
    """How many deltas were rolled up, and the groups of the runs whose counters changed."""

    deltas: int
    groups: list[UUID]


async def roll_up(db: Connection, rows_max: int) -> RolledUp:
    """Move a chunk of deltas into the sums."""
    rows = await sql.fetch(db, "usage/roll_up", rows_max=rows_max)
    return RolledUp(rows[0]["deltas"], list(rows[0]["groups"]))
