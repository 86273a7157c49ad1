"""Queries that store a running job's reports: progress, log, output, artifacts. Fenced writes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple
from uuid import UUID

from coatcheck.core.queries import sql
from coatcheck.db.connection import Connection, RawConnection
from coatcheck.domain.artifacts import BlobToDelete
from coatcheck.domain.job import Artifact, ClaimedJob, JobEvent


async def set_progress(
    db: Connection, updates: Sequence[tuple[ClaimedJob, float, str | None]]
) -> None:
    # In the order in which job_events/add.sql locks them.
    updates = sorted(updates, key=lambda update: (update[0].org, update[0].uuid.int))
    await db.fetch(
        sql("jobs/set_progress"),
        [job.org for job, _, _ in updates],
        [job.uuid for job, _, _ in updates],
        [job.lease for job, _, _ in updates],
        [fraction for _, fraction, _ in updates],
        [note for _, _, note in updates],
    )


async def add_events(
    db: Connection, events: Sequence[tuple[ClaimedJob, str, bytes]], write_id: int
) -> None:
    """Store log lines and chunks, in order. ``write_id`` is new for each: see ``events_added``."""
    await db.fetch(
        sql("job_events/add"),
        [job.org for job, _, _ in events],
        [job.uuid for job, _, _ in events],
        [job.lease for job, _, _ in events],
        [kind for _, kind, _ in events],
        [data for _, _, data in events],
        write_id,
    )


async def events_added(db: Connection, job: ClaimedJob, write_id: int) -> bool:
    """Whether an ``add_events`` whose answer was lost stored this job's events."""

    async def look(connection: RawConnection) -> bool:
        async with connection.transaction():
            await connection.fetch(sql("job_events/lock_job"), job.org, job.uuid)
            added = await connection.fetchval(
                sql("job_events/was_added"), job.org, job.uuid, write_id
            )
            return bool(added)

    return await db.run(look)


async def read_events(
    db: Connection, org: str, job_id: UUID, after: int, limit: int, bytes_max: int = 2**62
) -> list[JobEvent]:
    rows = await db.fetch(sql("job_events/read"), org, job_id, after, limit, bytes_max)
    return [JobEvent(*row) for row in rows]


class TailRow(NamedTuple):
    """A job's state, and its events after the one numbered ``after``."""

    org: str
    job: UUID
    after: int
    state: str
    failures: int
    crashes: int
    error_code: str | None
    error_message: str | None
    events: list[JobEvent]


async def tails(
    db: Connection, places: Collection[tuple[str, UUID, int]], events_max: int, bytes_max: int
) -> list[TailRow]:
    """A page of each job's events, for (org, id, after); jobs that do not exist are left out."""
    orgs, jobs, after = zip(*places, strict=True)
    rows = await db.fetch(sql("job_events/tail"), orgs, jobs, after, events_max, bytes_max)
    return [
        TailRow._make([*standing, [*map(JobEvent, seqs, kinds, data, times)] if seqs else []])
        for *standing, seqs, kinds, data, times in rows
    ]


async def last_mark(db: Connection, org: str, job_id: UUID, mark: bytes) -> int | None:
    """The number of the job's last JSON chunk that begins with ``mark``."""
    rows = await db.fetch(sql("job_events/last_mark"), org, job_id, mark)
    seq: int | None = rows[0]["seq"]
    return seq


async def add_artifact(
    db: Connection,
    job: ClaimedJob,
    *,
    name: str,
    blob_key: str,
    media_type: str,
    size: int,
    sha256: bytes,
) -> tuple[bool, BlobToDelete | None]:
    """Whether the artifact now belongs to its job, and the blob that it replaced."""
    rows = await db.fetch(
        sql("job_events/add_artifact"),
        job.org,
        job.uuid,
        job.lease,
        name,
        blob_key,
        media_type,
        size,
        sha256,
    )
    if not rows:
        return False, None
    return True, None if rows[0]["blob_key"] is None else BlobToDelete(*rows[0])


async def list_artifacts(db: Connection, org: str, job_id: UUID) -> list[Artifact]:
    rows = await db.fetch(sql("job_events/list_artifacts"), org, job_id)
    return [Artifact(*row) for row in rows]


async def deployment(db: Connection) -> UUID:
    """The id of this database."""
    rows = await db.fetch(sql("job_events/deployment"))
    identity: UUID = rows[0]["id"]
    return identity


async def known_blobs(db: Connection, blobs: Sequence[tuple[UUID, str]]) -> set[str]:
    """The blob keys, of these (job id, blob key), that belong to an artifact."""
    rows = await db.fetch(
        sql("job_events/known_blobs"), [job_id for job_id, _ in blobs], [key for _, key in blobs]
    )
    return {row["blob_key"] for row in rows}
