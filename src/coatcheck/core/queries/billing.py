"""Queries about Stripe: its events change organisations' plans, and meter events tell it the usage.

One transaction applies an event of Stripe, whole or not at all. Meter events are made from hours of
usage, claimed, sent and marked. ``core/schema/0010_usage.sql`` describes the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from coatcheck.core.queries import sql
from coatcheck.db.connection import Connection, RawConnection
from coatcheck.db.notifications import KEYS
from coatcheck.db.queries import in_transaction
from coatcheck.domain.tenants import ACTIVE, PlanChange, PlanEvent


async def apply_event(db: Connection, event: PlanEvent) -> PlanChange:
    """Apply an event, unless it was applied before. Safe to repeat with the same event."""

    async def apply(connection: RawConnection) -> PlanChange:
        org = await _org_of(connection, event)
        if org is None:
            return PlanChange.UNKNOWN
        if not await sql.fetch(connection, "billing/note_event", org=org, event=event.event_id):
            return PlanChange.REPEATED
        await _link(connection, org, event)
        await _put_subscription(connection, org, event)
        await sql.fetch(connection, "billing/settle", org=org, active=[*ACTIVE], channel=KEYS)
        return PlanChange.APPLIED

    return await in_transaction(db, apply)


async def _org_of(connection: RawConnection, event: PlanEvent) -> str | None:
    if event.org is not None:
        await sql.fetch(connection, "billing/add_org", org=event.org)
    found: str | None = await sql.value(
        connection,
        "billing/find_org",
        org=event.org,
        customer=event.customer,
        subscription=event.subscription,
    )
    return found


async def _link(connection: RawConnection, org: str, event: PlanEvent) -> None:
    if event.org is not None and event.customer is not None:
        await sql.fetch(
            connection,
            "billing/link_customer",
            org=org,
            customer=event.customer,
            relinks=event.relinks,
        )


async def _put_subscription(connection: RawConnection, org: str, event: PlanEvent) -> None:
    if event.subscription is not None and event.status is not None:
        await sql.fetch(
            connection,
            "billing/put_subscription",
            org=org,
            subscription=event.subscription,
            status=event.status,
            at=event.at,
            rank=event.rank,
        )


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


async def collect_meter_events(
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
            await sql.fetch(connection, "billing/begin_meter_events")
            rows = await sql.fetch(
                connection,
                "billing/lock_hours",
                hours_max=hours_max,
                after_seconds=after_seconds,
                days_back=days_back,
            )
            if rows:
                # A new statement has a new snapshot: it sees what was committed before the rows
                # were locked.
                await sql.fetch(
                    connection,
                    "billing/collect_meter_events",
                    orgs=[row["org_id"] for row in rows],
                    hours=[row["hour"] for row in rows],
                    endpoints=[row["endpoint"] for row in rows],
                    flows=[row["flow"] for row in rows],
                    measures=list(event_names),
                    event_names=list(event_names.values()),
                )
            return len({(row["org_id"], row["hour"]) for row in rows})

    return await db.run(make)


async def expire_meter_events(db: Connection, days_max: int) -> list[ExpiredEvent]:
    """Give up events that are older than Stripe accepts."""
    return [
        ExpiredEvent(*row)
        for row in await sql.fetch(db, "billing/expire_meter_events", days_max=days_max)
    ]


async def take_meter_events(
    db: Connection, rows_max: int, *, lease_seconds: float, doubt_seconds: float
) -> list[MeterEvent]:
    """Claim due events, and record that they are being sent. Events that were already doubtful for
    ``doubt_seconds`` stay so."""
    rows = await sql.fetch(
        db,
        "billing/take_meter_events",
        rows_max=rows_max,
        lease_seconds=lease_seconds,
        doubt_seconds=doubt_seconds,
    )
    return [MeterEvent(*row) for row in rows]


async def mark_meter_events(db: Connection, marked: Sequence[Marked]) -> None:
    """Record the outcomes of events."""
    events = [each.event for each in marked]
    await sql.fetch(
        db,
        "billing/mark_meter_events",
        orgs=[event.org for event in events],
        hours=[event.hour for event in events],
        measures=[event.measure for event in events],
        parts=[event.part for event in events],
        acknowledged=[each.acknowledged for each in marked],
        doubtful_since=[each.doubtful_since for each in marked],
        retry_seconds=[each.retry_seconds for each in marked],
        errors=[each.error for each in marked],
    )


async def prune_meter_events(db: Connection, kept_days: int, rows_max: int) -> int:
    """Delete expired rows. Returns how many."""
    deleted: int = await sql.value(
        db, "billing/prune_meter_events", keep_days=kept_days, rows_max=rows_max
    )
    return deleted
