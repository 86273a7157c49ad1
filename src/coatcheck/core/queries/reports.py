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
    # In the order in which ``reports/add`` locks them.
    updates = sorted(updates, key=lambda update: (update[0].org, update[0].uuid.int))
    await sql.fetch(
        db,
        "jobs/set_progress",
        orgs=[job.org for job, _, _ in updates],
        ids=[job.uuid for job, _, _ in updates],
        leases=[job.lease for job, _, _ in updates],
        fractions=[fraction for _, fraction, _ in updates],
        notes=[note for _, _, note in updates],
    )


async def add_events(
    db: Connection, events: Sequence[tuple[ClaimedJob, str, bytes]], write_id: int
) -> None:
    """Store log lines and chunks, in order. ``write_id`` is new for each: see ``events_added``."""
    await sql.fetch(
        db,
        "reports/add",
        orgs=[job.org for job, _, _ in events],
        ids=[job.uuid for job, _, _ in events],
        leases=[job.lease for job, _, _ in events],
        kinds=[kind for _, kind, _ in events],
        data=[data for _, _, data in events],
        write_id=write_id,
    )


async def events_added(db: Connection, job: ClaimedJob, write_id: int) -> bool:
    """Whether an ``add_events`` whose answer was lost stored this job's events."""

    async def look(connection: RawConnection) -> bool:
        async with connection.transaction():
            await sql.fetch(connection, "reports/lock_job", org=job.org, job=job.uuid)
            added = await sql.value(
                connection, "reports/was_added", org=job.org, job=job.uuid, write_id=write_id
            )
            return bool(added)

    return await db.run(look)


async def read_events(
    db: Connection, org: str, job_id: UUID, after: int, limit: int, bytes_max: int = 2**62
) -> list[JobEvent]:
    rows = await sql.fetch(
        db, "reports/read", org=org, job=job_id, after=after, limit=limit, bytes_max=bytes_max
    )
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
    rows = await sql.fetch(
        db,
        "reports/tail",
        orgs=orgs,
        ids=jobs,
        after=after,
        events_max=events_max,
        bytes_max=bytes_max,
    )
    return [
        TailRow._make([*standing, [*map(JobEvent, seqs, kinds, data, times)] if seqs else []])
        for *standing, seqs, kinds, data, times in rows
    ]


async def last_mark(db: Connection, org: str, job_id: UUID, mark: bytes) -> int | None:
    """The number of the job's last JSON chunk that begins with ``mark``."""
    seq: int | None = await sql.value(db, "reports/last_mark", org=org, job=job_id, mark=mark)
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
    rows = await sql.fetch(
        db,
        "reports/add_artifact",
        org=job.org,
        job=job.uuid,
        lease=job.lease,
        name=name,
        blob_key=blob_key,
        media_type=media_type,
        size=size,
        sha256=sha256,
    )
    if not rows:
        return False, None
    return True, None if rows[0]["blob_key"] is None else BlobToDelete(*rows[0])


async def list_artifacts(db: Connection, org: str, job_id: UUID) -> list[Artifact]:
    rows = await sql.fetch(db, "reports/list_artifacts", org=org, job=job_id)
    return [Artifact(*row) for row in rows]


async def deployment(db: Connection) -> UUID:
    """The id of this database."""
    identity: UUID = await sql.value(db, "reports/deployment")
    return identity


async def known_blobs(db: Connection, blobs: Sequence[tuple[UUID, str]]) -> set[str]:
    """The blob keys, of these (job id, blob key), that belong to an artifact."""
    rows = await sql.fetch(
        db,
        "reports/known_blobs",
        jobs=[job_id for job_id, _ in blobs],
        blob_keys=[key for _, key in blobs],
    )
    return {row["blob_key"] for row in rows}
