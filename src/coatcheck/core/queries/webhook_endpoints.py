"""Queries about registered webhook endpoints and pulled deliveries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

import asyncpg

from coatcheck.core.queries import sql
from coatcheck.core.queries.webhooks import Claimed, Secret, as_claimed, as_secret
from coatcheck.db.connection import Connection, RawConnection
from coatcheck.db.queries import in_transaction
from coatcheck.domain.webhooks import (
    ENDPOINTS_MAX,
    PREVIOUS_SECRET_SECONDS,
    PULL_SECONDS_MAX,
    TEST_EVENT,
    EndpointView,
)

_CREATE_LOCK: Final = 0x436F_5765  # "CoWe"


async def create(
    db: Connection,
    org: str,
    endpoint: UUID,
    *,
    url: str,
    events: Sequence[str],
    description: str,
    pulled: bool,
) -> EndpointView | None:
    """Register an endpoint; None if the organisation is at its limit."""

    async def insert(connection: RawConnection) -> list[asyncpg.Record]:
        await sql.fetch(connection, "webhooks/lock_endpoints", lock=_CREATE_LOCK, org=org)
        return await sql.fetch(
            connection,
            "webhooks/create_endpoint",
            org=org,
            endpoint=endpoint,
            url=url,
            events=list(events),
            description=description,
            pulled=pulled,
            endpoints_max=ENDPOINTS_MAX,
        )

    return _one(await in_transaction(db, insert))


async def list_all(db: Connection, org: str) -> list[EndpointView]:
    """An organisation's endpoints, oldest first."""
    return [
        _view(row) for row in await sql.fetch(db, "webhooks/list_endpoints", org=org, endpoint=None)
    ]


async def get(db: Connection, org: str, endpoint: UUID) -> EndpointView | None:
    return _one(await sql.fetch(db, "webhooks/list_endpoints", org=org, endpoint=endpoint))


async def change(
    db: Connection,
    org: str,
    endpoint: UUID,
    *,
    url: str | None,
    events: Sequence[str] | None,
    description: str | None,
) -> EndpointView | None:
    """Change the given fields. Returns the endpoint as it is then."""
    listed = None if events is None else list(events)
    return _one(
        await sql.fetch(
            db,
            "webhooks/change_endpoint",
            org=org,
            endpoint=endpoint,
            url=url,
            events=listed,
            description=description,
        )
    )


async def pause(db: Connection, org: str, endpoint: UUID) -> EndpointView | None:
    return _one(await sql.fetch(db, "webhooks/pause_endpoint", org=org, endpoint=endpoint))


async def resume(db: Connection, org: str, endpoint: UUID) -> EndpointView | None:
    """Send to it again, after a pause or a 410."""
    return _one(await sql.fetch(db, "webhooks/resume_endpoint", org=org, endpoint=endpoint))


async def delete(db: Connection, org: str, endpoint: UUID) -> bool:
    """Delete it. Returns whether it existed. ``webhooks.end_disabled`` ends its deliveries."""
    return bool(await sql.fetch(db, "webhooks/delete_endpoint", org=org, endpoint=endpoint))


async def delete_unpulled(db: Connection) -> int:
    """Delete pulled endpoints that nobody pulls from any more. Returns how many."""
    return len(await sql.fetch(db, "webhooks/delete_unpulled", seconds_max=float(PULL_SECONDS_MAX)))


async def secret(db: Connection, org: str, endpoint: UUID) -> Secret | None:
    """The secret that signs now."""
    rows = await sql.fetch(
        db,
        "webhooks/endpoint_secret",
        org=org,
        endpoint=endpoint,
        previous_seconds=float(PREVIOUS_SECRET_SECONDS),
    )
    return as_secret(rows[0]) if rows else None


async def rotate(db: Connection, org: str, endpoint: UUID, generation: int) -> Secret | None:
    """Rotate to the next secret; this one stays valid for a day."""
    await sql.fetch(
        db, "webhooks/rotate_endpoint", org=org, endpoint=endpoint, generation=generation
    )
    return await secret(db, org, endpoint)


async def send_test(db: Connection, org: str, endpoint: UUID, delivery: UUID) -> bool:
    """Write a test message. Returns whether the endpoint exists."""
    return bool(
        await sql.fetch(
            db,
            "webhooks/test_endpoint",
            org=org,
            endpoint=endpoint,
            delivery=delivery,
            event=TEST_EVENT,
        )
    )


async def take(
    db: Connection, org: str, endpoint: UUID, lease: UUID, *, limit: int, lease_seconds: float
) -> list[Claimed] | None:
    """Claim due messages of a pulled endpoint; None if there is no such endpoint."""
    rows = await sql.fetch(
        db,
        "webhooks/pull",
        org=org,
        endpoint=endpoint,
        rows_max=limit,
        lease_seconds=lease_seconds,
        lease=lease,
    )
    if not rows:
        return None
    return [as_claimed(row, lease) for row in rows if row["id"] is not None]


async def held(
    db: Connection, org: str, endpoint: UUID, deliveries: Sequence[tuple[UUID, UUID]]
) -> dict[UUID, int]:
    """How often these deliveries, as (id, lease), were tried, where the lease is still held."""
    rows = await sql.fetch(
        db,
        "webhooks/held",
        org=org,
        endpoint=endpoint,
        deliveries=[delivery for delivery, _ in deliveries],
        leases=[lease for _, lease in deliveries],
    )
    return {row["id"]: row["tries"] for row in rows}


def _one(rows: Sequence[asyncpg.Record]) -> EndpointView | None:
    return _view(rows[0]) if rows else None


def _view(row: asyncpg.Record) -> EndpointView:
    org, endpoint, url, events, *rest = row
    return EndpointView(org, endpoint, url, tuple(events), *rest)
