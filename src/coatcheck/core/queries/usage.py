"""What jobs have used: read, and summed up. One method a file of ``sql/usage``.

It is written by the statements that end jobs; ``schema/core/0010_usage.sql`` says how.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from uuid import UUID

from coatcheck.core.sql import sql
from coatcheck.db.connection import Connection
from coatcheck.domain.usage import UsageRow


async def read(
    db: Connection, org: str, first_day: date, last_day: date, endpoint: str | None
) -> list[UsageRow]:
    """What an organisation used, by day, endpoint and flow; both days are included."""
    rows = await db.fetch(sql("usage/read"), org, first_day, last_day, endpoint)
    return [UsageRow(*row) for row in rows]


async def read_hours(
    db: Connection, org: str, first_day: date, last_day: date, endpoint: str | None
) -> list[UsageRow]:
    """The same by hour, endpoint and flow, as far back as hours are kept."""
    rows = await db.fetch(sql("usage/read_hours"), org, first_day, last_day, endpoint)
    return [UsageRow(*row) for row in rows]


async def prune_hours(db: Connection, kept_days: int, rows_max: int) -> int:
    """Delete sums of hours that are older than they are kept; how many it was."""
    rows = await db.fetch(sql("usage/prune_hours"), kept_days, rows_max)
    deleted: int = rows[0]["rows"]
    return deleted


@dataclass(frozen=True, slots=True)
class RolledUp:
    """How many deltas were moved, and the groups of runs whose counters moved with them."""

    deltas: int
    groups: list[UUID]


async def roll_up(db: Connection, rows_max: int) -> RolledUp:
    """Move a chunk of what was used into the sums."""
    rows = await db.fetch(sql("usage/roll_up"), rows_max)
    return RolledUp(rows[0]["deltas"], list(rows[0]["groups"]))
