"""The sealed secrets of registered targets. One function a file of ``sql/service_secrets``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from coatcheck.store.line import Line
from coatcheck.store.sql import sql

SecretsKey = tuple[str, UUID]
"""An organisation and the id of a target's secrets."""


class Sealed(NamedTuple):
    """The sealed secrets of one endpoint's target, as they are written with its service."""

    id: UUID
    endpoint_id: str
    text: str


class Resealed(NamedTuple):
    """A row whose text was sealed anew."""

    org: str
    id: UUID
    before: str
    anew: str


async def find(line: Line, keys: Sequence[SecretsKey]) -> dict[SecretsKey, str]:
    """The sealed texts; what is not there is left out."""
    rows = await line.fetch(
        sql("service_secrets/find"), [org for org, _ in keys], [id_ for _, id_ in keys]
    )
    return {(row["org_id"], row["id"]): row["sealed"] for row in rows}


async def count(line: Line) -> dict[str, int]:
    """How many secrets each key has sealed, by its id; under "" how many definitions are plain."""
    rows = await line.fetch(sql("service_secrets/count"))
    return {row["key_id"]: row["secrets"] for row in rows}


async def sealed_with(
    line: Line, key_id: str, after: SecretsKey, rows_max: int
) -> list[tuple[SecretsKey, str]]:
    """Secrets that this key has sealed, a page in the order of their keys."""
    rows = await line.fetch(sql("service_secrets/sealed_with"), key_id, *after, rows_max)
    return [((row["org_id"], row["id"]), row["sealed"]) for row in rows]


async def reseal(line: Line, resealed: Sequence[Resealed]) -> int:
    """Write texts that were sealed anew. How many were still what had been read."""
    rows = await line.fetch(
        sql("service_secrets/reseal"),
        [each.org for each in resealed],
        [each.id for each in resealed],
        [each.before for each in resealed],
        [each.anew for each in resealed],
    )
    return len(rows)


async def prune(line: Line, endpoint: str, *, grace_seconds: float, rows_max: int) -> int:
    """Remove retired secrets that no job can ask for any more. How many."""
    rows = await line.fetch(sql("service_secrets/prune"), grace_seconds, endpoint, rows_max)
    return len(rows)
