"""Queries about the sealed secrets of registered targets."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple
from uuid import UUID

from coatcheck.core.queries import sql
from coatcheck.db.connection import Connection

SecretsKey = tuple[str, UUID]
"""An organisation and the id of a target's secrets."""


class Sealed(NamedTuple):
    """The sealed secrets of one endpoint's target, written with its service."""

    id: UUID
    endpoint_id: str
    text: str


class Retired(NamedTuple):
    """A row that no definition refers to any more."""

    retired_at: datetime
    org: str
    id: UUID


_FIRST: Final = Retired(datetime.min.replace(tzinfo=UTC), "", UUID(int=0))


class Resealed(NamedTuple):
    """A row whose text was sealed anew."""

    org: str
    id: UUID
    before: str
    anew: str


async def find(db: Connection, keys: Sequence[SecretsKey]) -> dict[SecretsKey, str]:
    """The sealed texts of these keys; missing ones are left out."""
    rows = await sql.fetch(
        db, "service_secrets/find", orgs=[org for org, _ in keys], ids=[id_ for _, id_ in keys]
    )
    return {(row["org_id"], row["id"]): row["sealed"] for row in rows}


async def count(db: Connection) -> dict[str, int]:
    """How many secrets each key has sealed, by its id; under "", how many definitions are plain."""
    rows = await sql.fetch(db, "service_secrets/count")
    return {row["key_id"]: row["secrets"] for row in rows}


async def sealed_with(
    db: Connection, key_id: str, after: SecretsKey, rows_max: int
) -> list[tuple[SecretsKey, str]]:
    """A page of the secrets that this key has sealed, in the order of their keys."""
    rows = await sql.fetch(
        db,
        "service_secrets/sealed_with",
        key_id=key_id,
        after_org=after[0],
        after_id=after[1],
        rows_max=rows_max,
    )
    return [((row["org_id"], row["id"]), row["sealed"]) for row in rows]


async def reseal(db: Connection, resealed: Sequence[Resealed]) -> int:
    """Write texts that were sealed anew. Returns how many had not changed since they were read."""
    rows = await sql.fetch(
        db,
        "service_secrets/reseal",
        orgs=[each.org for each in resealed],
        ids=[each.id for each in resealed],
        before=[each.before for each in resealed],
        anew=[each.anew for each in resealed],
    )
    return len(rows)


class PrunedSecrets(NamedTuple):
    """How many retired secrets were removed, and the last one that was checked; None if there are
    no more."""

    removed: int
    last: Retired | None


async def prune(
    db: Connection,
    endpoint: str,
    *,
    grace_seconds: float,
    rows_max: int,
    after: Retired | None = None,
) -> PrunedSecrets:
    """Check a page of retired secrets, and remove those that no job can need any more."""
    after = after or _FIRST
    rows = await sql.fetch(
        db,
        "service_secrets/prune",
        grace_seconds=grace_seconds,
        endpoint=endpoint,
        rows_max=rows_max,
        after_at=after.retired_at,
        after_org=after.org,
        after_id=after.id,
    )
    last = None
    if len(rows) == rows_max:
        last = Retired(rows[-1]["retired_at"], rows[-1]["org_id"], rows[-1]["id"])
    return PrunedSecrets(sum(row["is_removed"] for row in rows), last)
