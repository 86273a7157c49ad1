"""Staged files, and which of their blobs are wanted. One method a file of ``sql/uploads``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from coatcheck.core.sql import sql
from coatcheck.db.connection import Connection, RawConnection
from coatcheck.domain.inputs import StagedUpload

if TYPE_CHECKING:
    import asyncpg


async def create(
    db: Connection, *, org: str, upload_id: UUID, owner: str, blob_key: str, life_seconds: float
) -> StagedUpload:
    """Make a place for a file. It must be used within ``life_seconds``."""
    rows = await db.fetch(sql("uploads/create"), org, upload_id, owner, blob_key, life_seconds)
    return _upload(rows[0])


async def get(db: Connection, org: str, upload_id: UUID) -> StagedUpload | None:
    """An upload of an organisation's, or None."""
    rows = await db.fetch(sql("uploads/get"), org, upload_id)
    return _upload(rows[0]) if rows else None


async def find(db: Connection, upload_id: UUID) -> StagedUpload | None:
    """The upload of this id, whosever it is: for one who has its signed URL."""
    rows = await db.fetch(sql("uploads/find"), upload_id)
    return _upload(rows[0]) if rows else None


async def use(
    connection: Connection | RawConnection, *, org: str, upload_id: UUID, owner: str, used_by: UUID
) -> str | None:
    """Take an upload, in the transaction that writes what reads it.

    The key of its blob; None if it is not there, not the owner's, used already or too old.
    """
    rows = await connection.fetch(sql("uploads/use"), org, upload_id, owner, used_by)
    return rows[0]["blob_key"] if rows else None


async def forget(db: Connection, rows_max: int) -> int:
    """Forget uploads whose time is up. How many."""
    return len(await db.fetch(sql("uploads/forget"), rows_max))


async def known_uploads(db: Connection, blobs: Sequence[tuple[UUID, str]]) -> set[str]:
    """Which of these (upload id, blob key) somebody still answers for."""
    rows = await db.fetch(
        sql("uploads/known"), [upload for upload, _ in blobs], [key for _, key in blobs]
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
