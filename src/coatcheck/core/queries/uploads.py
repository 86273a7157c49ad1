"""Queries about staged files, and which of their blobs are needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from coatcheck.core.queries import sql
from coatcheck.db.connection import Connection, RawConnection
from coatcheck.domain.inputs import StagedUpload

if TYPE_CHECKING:
    import asyncpg


async def create(
    db: Connection, *, org: str, upload_id: UUID, owner: str, blob_key: str, life_seconds: float
) -> StagedUpload:
    """Create an upload. It must be used within ``life_seconds``."""
    rows = await sql.fetch(
        db,
        "uploads/create",
        org=org,
        upload=upload_id,
        owner=owner,
        blob_key=blob_key,
        life_seconds=life_seconds,
    )
    return _upload(rows[0])


async def get(db: Connection, org: str, upload_id: UUID) -> StagedUpload | None:
    """An organisation's upload, or None."""
    rows = await sql.fetch(db, "uploads/get", org=org, upload=upload_id)
    return _upload(rows[0]) if rows else None


async def find(db: Connection, upload_id: UUID) -> StagedUpload | None:
    """The upload with this id, of any organisation: for a request with its signed URL."""
    rows = await sql.fetch(db, "uploads/find", upload=upload_id)
    return _upload(rows[0]) if rows else None


async def use(
    connection: Connection | RawConnection, *, org: str, upload_id: UUID, owner: str, used_by: UUID
) -> str | None:
    """Use an upload, in the transaction that writes its reader.

    Returns the key of its blob; None if it does not exist, has another owner, was used or expired.
    """
    rows = await sql.fetch(
        connection, "uploads/use", org=org, upload=upload_id, owner=owner, used_by=used_by
    )
    return rows[0]["blob_key"] if rows else None


async def prune(db: Connection, rows_max: int) -> int:
    """Delete expired uploads. Returns how many."""
    return len(await sql.fetch(db, "uploads/prune", rows_max=rows_max))


async def known_uploads(db: Connection, blobs: Sequence[tuple[UUID, str]]) -> set[str]:
    """The blob keys, of these (upload id, blob key), that are still needed."""
    rows = await sql.fetch(
        db,
        "uploads/known",
        uploads=[upload for upload, _ in blobs],
        blob_keys=[key for _, key in blobs],
    )
    return {row[0] for row in rows}


def _upload(row: asyncpg.Record) -> StagedUpload:
    return StagedUpload(
        row["org_id"],
        row["id"],
        row["owner"],
        row["blob_key"],
        row["created_at"],
        row["expires_at"],
        row["is_expired"],
        row["used_by"],
    )
