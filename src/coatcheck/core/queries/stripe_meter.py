"""Queries about meter events for Stripe: made from hours of usage, claimed, sent, marked.

``core/schema/0010_usage.sql`` describes the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from coatcheck.core.queries import sql
from coatcheck.db.connection import Connection, RawConnection


@dataclass(frozen=True, slots=True)
class MeterEvent:
    """An event to send: ``value`` of a measure that an organisation used in an hour.

    ``doubtful_since`` is when it was sent before with an unknown outcome; ``acknowledged`` is the
    value that Stripe has acknowledged for the same measure and hour.
    """

    org: str
    hour: datetime
    measure: str
    part: int
    identifier: str
    event_name: str
    customer: str
    value: int
    attempts: int
    attempted_at: datetime
    doubtful_since: datetime | None
    doubtful_seconds: float | None
    acknowledged: int


@dataclass(frozen=True, slots=True)
class Marked:
    """The outcome of an event. ``doubtful_since``: it is unknown whether Stripe has it."""

    event: MeterEvent
    acknowledged: bool
    doubtful_since: datetime | None = None
    retry_seconds: float = 0.0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ExpiredEvent:
    """An event that is older than Stripe accepts."""

    org: str
    hour: datetime
    measure: str
    value: int


async def collect(
    db: Connection,
    event_names: Mapping[str, str],
    *,
    hours_max: int,
    after_seconds: int,
    days_back: int,
) -> int:
    """Make events from hours that have ended, for each measure under its event name. Returns how
    many hours of organisations it looked at."""

    async def make(connection: RawConnection) -> int:
        async with connection.transaction():
            await sql.fetch(connection, "stripe_meter/begin")
            rows = await sql.fetch(
                connection,
                "stripe_meter/lock_hours",
                hours_max=hours_max,
                after_seconds=after_seconds,
                days_back=days_back,
            )
            if rows:
                # A new statement has a new snapshot: it sees what was committed before the rows
                # were locked.
                await sql.fetch(
                    connection,
                    "stripe_meter/collect",
                    orgs=[row["org_id"] for row in rows],
                    hours=[row["hour"] for row in rows],
                    endpoints=[row["endpoint"] for row in rows],
                    flows=[row["flow"] for row in rows],
                    measures=list(event_names),
                    event_names=list(event_names.values()),
                )
            return len({(row["org_id"], row["hour"]) for row in rows})

    return await db.run(make)


async def expire(db: Connection, days_max: int) -> list[ExpiredEvent]:
    """Give up events that are older than Stripe accepts."""
    return [
        ExpiredEvent(*row) for row in await sql.fetch(db, "stripe_meter/expire", days_max=days_max)
    ]


async def take(
    db: Connection, rows_max: int, *, lease_seconds: float, doubt_seconds: float
) -> list[MeterEvent]:
    """Claim due events, and record that they are being sent. Events that were already doubtful for
    ``doubt_seconds`` stay so."""
    rows = await sql.fetch(
        db,
        "stripe_meter/take",
        rows_max=rows_max,
        lease_seconds=lease_seconds,
        doubt_seconds=doubt_seconds,
    )
    return [MeterEvent(*row) for row in rows]


async def mark(db: Connection, marked: Sequence[Marked]) -> None:
    """Record the outcomes of events."""
    events = [each.event for each in marked]
    await sql.fetch(
        db,
        "stripe_meter/mark",
        orgs=[event.org for event in events],
        hours=[event.hour for event in events],
        measures=[event.measure for event in events],
        parts=[event.part for event in events],
        acknowledged=[each.acknowledged for each in marked],
        doubtful_since=[each.doubtful_since for each in marked],
        retry_seconds=[each.retry_seconds for each in marked],
        errors=[each.error for each in marked],
    )


async def prune(db: Connection, kept_days: int, rows_max: int) -> int:
    """Delete expired rows. Returns how many."""
    deleted: int = await sql.value(db, "stripe_meter/prune", keep_days=kept_days, rows_max=rows_max)
    return deleted
