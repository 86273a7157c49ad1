"""Queries that apply Stripe's events to organisations' plans: one transaction
applies an event, whole or not at all."""

from __future__ import annotations

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
