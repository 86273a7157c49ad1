"""Queries about usage reports: make each once, list, find."""

from __future__ import annotations

from uuid import UUID

import asyncpg
import msgspec

from coatcheck.core.queries import sql
from coatcheck.db.connection import Connection
from coatcheck.domain.usage import UsageReport, UsageReportItem, UsageTotals


async def make(
    db: Connection, period: str, *, rows_max: int, after_seconds: int, days_back: int
) -> int:
    """Make missing reports, and write their webhook deliveries. Returns how many."""
    made = await sql.fetch(
        db,
        "usage_reports/make",
        period=period,
        rows_max=rows_max,
        after_seconds=after_seconds,
        days_back=days_back,
    )
    return len(made)


async def list_all(db: Connection, org: str) -> list[UsageReport]:
    """An organisation's reports without their items, newest first."""
    return [_report(row) for row in await sql.fetch(db, "usage_reports/list", org=org)]


async def find(db: Connection, org: str, report: UUID) -> UsageReport | None:
    rows = await sql.fetch(db, "usage_reports/find", org=org, report=report)
    return _report(rows[0], rows[0]["items"]) if rows else None


async def prune(db: Connection, kept_days: int, rows_max: int) -> int:
    """Delete expired reports. Returns how many."""
    deleted: int = await sql.value(
        db, "usage_reports/prune", keep_days=kept_days, rows_max=rows_max
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
