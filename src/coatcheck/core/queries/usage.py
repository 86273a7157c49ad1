"""Queries about usage: read it, roll it up; make each usage report once, list and find reports.

The statements that end jobs write usage; ``core/schema/0010_usage.sql`` says how.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from uuid import UUID

import asyncpg
import msgspec

from coatcheck.core.queries import sql
from coatcheck.db.connection import Connection
from coatcheck.domain.usage import UsageReport, UsageReportItem, UsageRow, UsageTotals


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


async def make_reports(
    db: Connection, period: str, *, rows_max: int, after_seconds: int, days_back: int
) -> int:
    """Make missing reports, and write their webhook deliveries. Returns how many."""
    made = await sql.fetch(
        db,
        "usage/make_reports",
        period=period,
        rows_max=rows_max,
        after_seconds=after_seconds,
        days_back=days_back,
    )
    return len(made)


async def list_reports(db: Connection, org: str) -> list[UsageReport]:
    """An organisation's reports without their items, newest first."""
    return [_report(row) for row in await sql.fetch(db, "usage/list_reports", org=org)]


async def find_report(db: Connection, org: str, report: UUID) -> UsageReport | None:
    rows = await sql.fetch(db, "usage/find_report", org=org, report=report)
    return _report(rows[0], rows[0]["items"]) if rows else None


async def prune_reports(db: Connection, kept_days: int, rows_max: int) -> int:
    """Delete expired reports. Returns how many."""
    deleted: int = await sql.value(
        db, "usage/prune_reports", keep_days=kept_days, rows_max=rows_max
    )
    return deleted


def _report(row: asyncpg.Record, items: str = "[]") -> UsageReport:
    return UsageReport(
        id=row["id"],
        period=row["period"],
        first_day=row["first_day"],
        last_day=row["last_day"],
        created_at=row["created_at"],
        totals=msgspec.json.decode(row["totals"], type=UsageTotals),
        items=msgspec.json.decode(items, type=list[UsageReportItem]),
    )
