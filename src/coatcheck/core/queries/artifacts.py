"""What remains of artifacts: their records. One method a file of ``sql/artifacts``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from coatcheck.core.sql import sql
from coatcheck.db.connection import Connection
from coatcheck.domain.artifacts import (
    ArtifactCopy,
    ArtifactRecord,
    Disposal,
    DoomedBlob,
    LeftBlob,
)
from coatcheck.domain.limits import INPUT_RECORD_SECONDS

_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)


async def delete(db: Connection, org: str, job: UUID, name: str) -> list[DoomedBlob]:
    """Take an artifact from a job that has ended. Its blob, if it had one of that name."""
    rows = await db.fetch(sql("artifacts/delete"), org, job, name)
    return [DoomedBlob(*row) for row in rows]


async def close(db: Connection, gone: Sequence[DoomedBlob]) -> None:
    """Say that blobs are gone."""
    await db.fetch(
        sql("artifacts/close"),
        [blob.org for blob in gone],
        [blob.job for blob in gone],
        [blob.seq for blob in gone],
    )


async def left(
    db: Connection, rows_max: int, *, grace_seconds: float, after: LeftBlob | None = None
) -> list[LeftBlob]:
    """Blobs that somebody doomed longer than ``grace_seconds`` ago and did not say to be gone; a
    page of them, those after ``after``."""
    place = (_LONG_AGO, 0) if after is None else (after.deleting_at, after.blob.seq)
    rows = await db.fetch(sql("artifacts/left"), *place, grace_seconds, rows_max)
    return [LeftBlob(DoomedBlob(*blob), deleting_at) for *blob, deleting_at in rows]


async def forget(db: Connection, rows_max: int) -> int:
    """Forget artifacts whose record was kept long enough. How many."""
    return len(await db.fetch(sql("artifacts/forget"), float(INPUT_RECORD_SECONDS), rows_max))


async def record(db: Connection, org: str, job: UUID, name: str) -> ArtifactRecord | None:
    """What is known of the artifact of a name, whether or not it is still there."""
    rows = await db.fetch(sql("artifacts/record"), org, job, name)
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
