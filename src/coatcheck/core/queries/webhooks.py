"""Queries about webhook deliveries: the outbox and the log.

The statements that change a state write the rows of the outbox
(``write_deliveries_from_moved`` of ``core/queries/webhooks.sql``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

import asyncpg
import msgspec

from coatcheck.core.queries import sql
from coatcheck.db.connection import Connection, RawConnection
from coatcheck.domain.webhooks import (
    LOG_SECONDS,
    PREVIOUS_SECRET_SECONDS,
    PULL_SECONDS_MAX,
    UNUSED_TARGET_SECONDS,
    DeliveryEvent,
    DeliveryStatus,
    SubjectKind,
)

CLAIM_LOCK: Final = 0x436F_6174_5768  # "CoatWh"

Cursor = tuple[str, UUID]
"""Where a scan of targets ended: an organisation and a target."""

FIRST: Final[Cursor] = ("", UUID(int=0))


@dataclass(frozen=True, slots=True)
class Room:
    """How many deliveries may be claimed: in all, to failing targets, of one organisation, and to
    one target. The last two count what is in flight in all processes."""

    places: int
    places_of_failing: int
    per_org: int
    per_target: int


@dataclass(frozen=True, slots=True)
class Claimed:
    """A delivery to post, under a lease."""

    event: DeliveryEvent
    url: str
    tries: int
    generations: tuple[int, ...]
    """The secrets that sign it, the current one first."""
    failing: bool
    """Whether the last try at its target failed."""
    to_endpoint: bool
    """Whether the secrets are those of its target, an endpoint, or else the organisation's."""
    lease: UUID
    waited_seconds: float | None = None
    """How long ago it was written, on its very first try."""
    traceparent: str | None = None
    """The trace of its job."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The outcome of a post. ``asked_seconds``: the receiver's Retry-After."""

    org: str
    delivery: UUID
    lease: UUID
    status: DeliveryStatus
    status_code: int | None
    error: str | None
    delay_seconds: float | None
    asked_seconds: float | None


@dataclass(frozen=True, slots=True)
class PrunedWebhooks:
    deliveries: int
    targets: int


async def upsert_targets(
    db: Connection | RawConnection, targets: Sequence[tuple[str, UUID, str]]
) -> None:
    """Make sure that targets, as (org, id, url), exist and stay for days: for a caller that refers
    to them in a row of its own within a minute."""
    await sql.fetch(
        db,
        "webhooks/upsert_targets",
        orgs=[org for org, _, _ in targets],
        targets=[target for _, target, _ in targets],
        urls=[url for _, _, url in targets],
    )


async def claim(
    db: Connection,
    room: Room,
    lease: UUID,
    *,
    lease_seconds: float,
    after: Cursor,
    targets_max: int,
) -> tuple[list[Claimed], Cursor]:
    """Claim due deliveries. Also returns where the scan ended: the next one continues there."""

    async def choose(connection: RawConnection) -> list[asyncpg.Record]:
        async with connection.transaction():
            await sql.fetch(connection, "webhooks/lock_claims", lock=CLAIM_LOCK)
            return await sql.fetch(
                connection,
                "webhooks/claim",
                places=room.places,
                failing_places=room.places_of_failing,
                per_org=room.per_org,
                per_target=room.per_target,
                lease_seconds=lease_seconds,
                after_org=after[0],
                after_target=after[1],
                targets_max=targets_max,
                lease=lease,
            )

    rows = await db.run(choose)
    ends = [(row["org_id"], row["target_id"]) for row in rows if row["id"] is None]
    claimed = [as_claimed(row, lease) for row in rows if row["id"] is not None]
    return claimed, ends[0] if ends else FIRST


async def next_due_seconds(db: Connection) -> float | None:
    """Seconds until a delivery is due, not above 0 if one is; None if there is none."""
    seconds: float | None = await sql.value(db, "webhooks/next_due")
    return seconds


async def mark(db: Connection, marks: Sequence[Mark]) -> set[UUID]:
    """Record the outcomes of posts. Returns the deliveries whose lease was still held.

    In the order of their keys, as in ``renew``: the two wait for each other, and do not deadlock.
    """
    marks = sorted(marks, key=lambda each: (each.org, each.delivery))
    rows = await sql.fetch(
        db,
        "webhooks/mark",
        orgs=[each.org for each in marks],
        deliveries=[each.delivery for each in marks],
        leases=[each.lease for each in marks],
        statuses=[each.status.value for each in marks],
        status_codes=[each.status_code for each in marks],
        errors=[each.error for each in marks],
        delay_seconds=[each.delay_seconds for each in marks],
        asked_seconds=[each.asked_seconds for each in marks],
    )
    return {row["id"] for row in rows}


async def renew(db: Connection, posting: Sequence[Claimed], lease_seconds: float) -> set[UUID]:
    """Extend the leases of posts in flight. Returns the deliveries whose lease was still held."""
    posting = sorted(posting, key=lambda each: (each.event.org, each.event.id))
    rows = await sql.fetch(
        db,
        "webhooks/renew",
        orgs=[each.event.org for each in posting],
        deliveries=[each.event.id for each in posting],
        leases=[each.lease for each in posting],
        lease_seconds=lease_seconds,
    )
    return {row["id"] for row in rows}


async def end_disabled(db: Connection, rows_max: int) -> int:
    """End deliveries to receivers that answered 410 and to deleted endpoints. Returns how many."""
    return len(await sql.fetch(db, "webhooks/end_disabled", rows_max=rows_max))


async def delete_unpulled(db: Connection) -> None:
    """Delete pulled endpoints that nobody pulls from any more."""
    await sql.fetch(db, "webhooks/delete_unpulled", seconds_max=float(PULL_SECONDS_MAX))


async def prune(db: Connection, rows_max: int) -> PrunedWebhooks:
    """Delete expired deliveries and unused targets. Returns how many of each were checked."""
    (row,) = await sql.fetch(
        db,
        "webhooks/prune",
        log_seconds=float(LOG_SECONDS),
        unused_seconds=float(UNUSED_TARGET_SECONDS),
        rows_max=rows_max,
    )
    return PrunedWebhooks(row["deliveries"], row["targets"])


def as_claimed(row: asyncpg.Record, lease: UUID) -> Claimed:
    """A claimed delivery, from a row of ``claim`` or ``pull``."""
    generation: int = row["generation"]
    rotated_at: datetime | None = row["rotated_at"]
    generations: tuple[int, ...] = (generation,)
    if rotated_at is not None:
        age = (row["claimed_at"] - rotated_at).total_seconds()
        if age < PREVIOUS_SECRET_SECONDS:
            generations = (generation, generation - 1)
    event = DeliveryEvent(
        row["org_id"],
        row["id"],
        row["target_id"],
        SubjectKind(row["subject_kind"]),
        row["subject_id"],
        row["run_id"],
        row["event"],
        msgspec.json.decode(row["facts"]),
        row["created_at"],
    )
    return Claimed(
        event,
        row["url"],
        row["tries"],
        generations,
        row["failing"],
        row["to_endpoint"],
        lease,
        (row["claimed_at"] - row["created_at"]).total_seconds() if row["is_first_try"] else None,
        row["traceparent"],
    )
