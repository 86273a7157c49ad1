"""Queries that apply Stripe's events to organisations' plans: one transaction
applies an event, whole or not at all."""

from __future__ import annotations

from coatcheck.core.queries import sql
from coatcheck.db.connection import Connection, RawConnection
from coatcheck.db.notifications import KEYS
from coatcheck.domain.tenants import ACTIVE, PlanChange, PlanEvent


async def apply_event(db: Connection, event: PlanEvent) -> PlanChange:
    """Apply an event, unless it was applied before. Safe to repeat with the same event."""

    async def apply(connection: RawConnection) -> PlanChange:
        async with connection.transaction():
            org = await _org_of(connection, event)
            if org is None:
                return PlanChange.UNKNOWN
            if not await connection.fetch(sql("billing/note_event"), org, event.event_id):
                return PlanChange.REPEATED
            await _link(connection, org, event)
            await _put_subscription(connection, org, event)
            await connection.execute(sql("billing/settle"), org, [*ACTIVE], KEYS)
            return PlanChange.APPLIED

    return await db.run(apply)


async def _org_of(connection: RawConnection, event: PlanEvent) -> str | None:
    if event.org is not None:
        await connection.execute(sql("billing/add_org"), event.org)
    found: str | None = await connection.fetchval(
        sql("billing/find_org"), event.org, event.customer, event.subscription
    )
    return found


async def _link(connection: RawConnection, org: str, event: PlanEvent) -> None:
    if event.org is not None and event.customer is not None:
        await connection.execute(sql("billing/link_customer"), org, event.customer, event.relinks)


async def _put_subscription(connection: RawConnection, org: str, event: PlanEvent) -> None:
    if event.subscription is not None and event.status is not None:
        await connection.execute(
            sql("billing/put_subscription"),
            org,
            event.subscription,
            event.status,
            event.at,
            event.rank,
        )
