"""Queries about artifact records, which outlive their artifacts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from coatcheck.core.queries import sql
from coatcheck.db.connection import Connection
from coatcheck.domain.artifacts import (
    ArtifactCopy,
    ArtifactRecord,
    BlobToDelete,
    Disposal,
    LeftoverBlob,
)
from coatcheck.domain.limits import INPUT_RECORD_SECONDS

_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)


async def delete(db: Connection, org: str, job: UUID, name: str) -> list[BlobToDelete]:
    """Delete an artifact of a job that has ended. Returns its blob, if there was one."""
    rows = await sql.fetch(db, "artifacts/delete", org=org, job=job, name=name)
    return [BlobToDelete(*row) for row in rows]


async def close(db: Connection, gone: Sequence[BlobToDelete]) -> None:
    """Record that blobs are deleted."""
    await sql.fetch(
        db,
        "artifacts/close",
        orgs=[blob.org for blob in gone],
        jobs=[blob.job for blob in gone],
        seqs=[blob.seq for blob in gone],
    )


async def undeleted_blobs(
    db: Connection, rows_max: int, *, grace_seconds: float, after: LeftoverBlob | None = None
) -> list[LeftoverBlob]:
    """A page of blobs, after ``after``, that were to be deleted more than ``grace_seconds`` ago and
    are not recorded as deleted."""
    rows = await sql.fetch(
        db,
        "artifacts/undeleted_blobs",
        after_at=_LONG_AGO if after is None else after.deleting_at,
        after_seq=0 if after is None else after.blob.seq,
        grace_seconds=grace_seconds,
        rows_max=rows_max,
    )
    return [LeftoverBlob(BlobToDelete(*blob), deleting_at) for *blob, deleting_at in rows]


async def prune(db: Connection, rows_max: int) -> int:
    """Delete records that were kept long enough. Returns how many."""
    return len(
        await sql.fetch(
            db,
            "artifacts/prune_records",
            keep_seconds=float(INPUT_RECORD_SECONDS),
            rows_max=rows_max,
        )
    )


async def record(db: Connection, org: str, job: UUID, name: str) -> ArtifactRecord | None:
    """The record of the artifact of a name, whether or not the artifact still exists."""
    rows = await sql.fetch(db, "artifacts/record", org=org, job=job, name=name)
    if not rows:
        return None
    last = rows[-1]
    return ArtifactRecord(
        last["org_id"],
        last["job_id"],
        last["name"],
        last["owner"],
        last["endpoint"],
        last["flow"],
        last["media_type"],
        last["bytes"],
        last["sha256"],
        last["read_at"],
        tuple(
            ArtifactCopy(
                row["stored_at"],
                row["deleted_at"],
                None if row["mechanism"] is None else Disposal(row["mechanism"]),
            )
            for row in rows
        ),
    )
