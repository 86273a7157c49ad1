"""Rows of batches that answer for blobs, without the batches around them."""

from __future__ import annotations

from uuid import UUID

from coatcheck.db.connection import Connection
from coatcheck.domain.ids import new_id


async def put_part(
    line: Connection,
    *,
    source: str,
    source_key: str,
    part: UUID | None = None,
    upload_id: UUID | None = None,
    state: str = "pending",
) -> None:
    await line.fetch(
        "INSERT INTO batch_parts (org_id, id, batch_id, run_id, position, source, source_key,"
        " upload_id, state) VALUES ('acme', $1, $2, $2, 0, $3, $4, $5, $6)",
        part or new_id(),
        new_id(),
        source,
        source_key,
        upload_id,
        state,
    )


async def put_export(line: Connection, export: UUID, blob_key: str) -> None:
    await line.fetch(
        "INSERT INTO batch_exports (org_id, id, batch_id, run_id, state, blob_key, bytes, sha256,"
        " completed_at, expires_at)"
        " VALUES ('acme', $1, $2, $2, 'completed', $3, 1, '', now(), now() + interval '1 day')",
        export,
        new_id(),
        blob_key,
    )
