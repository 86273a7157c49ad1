"""Queries about jobs' inputs and every copy of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from coatcheck.core.queries import jobs as job_store
from coatcheck.core.queries import sql
from coatcheck.db.connection import Connection
from coatcheck.db.queries import query_or_die
from coatcheck.domain.inputs import (
    Copy,
    DueCopy,
    HeldCopy,
    InputRecord,
    Layer,
    Mechanism,
    StoredInput,
)
from coatcheck.domain.job import ClaimedJob, NewJob
from coatcheck.domain.limits import INPUT_RECORD_SECONDS
from coatcheck.domain.states import State

_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NOBODY: Final = UUID(int=0)


async def submit(
    db: Connection, job: NewJob, stored: StoredInput, life_seconds: float
) -> dict[UUID, State]:
    """Create a job together with the record of its input, or neither if its key is taken.

    Returns the job's state, if it was created. The blob may live for ``life_seconds`` after it was
    stored.
    """
    rows = await query_or_die(
        db,
        "input.inserted_not_committed",
        sql,
        "inputs/submit",
        **job_store.arguments([job]),
        sha256=stored.sha256,
        size=stored.size,
        pieces=stored.pieces,
        blob_key=stored.blob_key,
        age_seconds=stored.age_seconds,
        life_seconds=life_seconds,
        keep_seconds=float(INPUT_RECORD_SECONDS),
    )
    return job_store.created(rows)


async def note_disk_copy(db: Connection, job: ClaimedJob, place: str) -> float | None:
    """Record that the input is about to be copied to a disk, at ``place``: a host, a slash and a
    folder.

    Returns for how many seconds the copy may exist, by the database's clock. None if the caller no
    longer holds the job: then it must not make the copy.
    """
    rows = await sql.fetch(
        db, "inputs/note_disk_copy", org=job.org, job=job.uuid, lease=job.lease, place=place
    )
    return rows[0]["seconds"] if rows else None


async def disk_copies_deleted(
    db: Connection, copies: Sequence[HeldCopy], mechanism: Mechanism
) -> None:
    """Record that copies on a disk are deleted."""
    await sql.fetch(db, "inputs/disk_copies_deleted", **_columns(copies), mechanism=mechanism.value)


async def open_disk_copies(db: Connection, host: str) -> list[HeldCopy]:
    """The copies on a machine's disks that are not recorded as deleted."""
    rows = await sql.fetch(db, "inputs/open_disk_copies", prefix=f"{host}/")
    return [HeldCopy(*row) for row in rows]


async def open_blobs(db: Connection, jobs: Sequence[tuple[str, UUID]]) -> list[HeldCopy]:
    """The blobs of these jobs' inputs, as (org, id), that are not deleted yet."""
    rows = await sql.fetch(
        db, "inputs/open_blobs", orgs=[org for org, _ in jobs], jobs=[job_id for _, job_id in jobs]
    )
    return [HeldCopy(*row) for row in rows]


async def due(db: Connection, rows_max: int, after: DueCopy | None = None) -> list[DueCopy]:
    """A page of blobs to delete now, after ``after``."""
    rows = await sql.fetch(
        db,
        "inputs/due",
        after_at=_LONG_AGO if after is None else after.expires_at,
        after_org="" if after is None else after.copy.org,
        after_job=_NOBODY if after is None else after.copy.job,
        rows_max=rows_max,
    )
    return [
        DueCopy(
            HeldCopy(row["org_id"], row["job_id"], row["place"]),
            Mechanism(row["mechanism"]),
            row["expires_at"],
        )
        for row in rows
    ]


async def mark_deleted(db: Connection, copies: Sequence[tuple[HeldCopy, Mechanism]]) -> int:
    """Record that blobs are deleted, and by what. Returns how many were not recorded before."""
    rows = await sql.fetch(
        db,
        "inputs/mark_deleted",
        **_columns([copy for copy, _ in copies]),
        mechanisms=[mechanism.value for _, mechanism in copies],
    )
    return len(rows)


async def close_pointers(db: Connection, rows_max: int) -> int:
    """Close the rows of pointers that were removed when their job ended. Returns how many."""
    return len(await sql.fetch(db, "inputs/close_pointers", rows_max=rows_max))


async def known_inputs(db: Connection, inputs: Sequence[tuple[UUID, str]]) -> set[str]:
    """The blob keys, of these (job id, blob key), that a record still refers to."""
    rows = await sql.fetch(
        db,
        "inputs/known",
        jobs=[job_id for job_id, _ in inputs],
        blob_keys=[key for _, key in inputs],
    )
    return {row["place"] for row in rows}


async def prune(db: Connection, rows_max: int) -> int:
    """Delete records that were kept long enough. Returns how many."""
    inputs: int = await sql.value(db, "inputs/prune", rows_max=rows_max)
    return inputs


async def record(db: Connection, org: str, job_id: UUID) -> InputRecord | None:
    """The record of a job's input and of every copy of it."""
    rows = await sql.fetch(db, "inputs/record", org=org, job=job_id)
    if not rows:
        return None
    first = rows[0]
    return InputRecord(
        first["org_id"],
        first["job_id"],
        first["owner"],
        first["endpoint"],
        first["sha256"],
        first["bytes"],
        first["received_at"],
        first["read_at"],
        tuple(
            Copy(
                Layer(row["layer"]),
                row["place"],
                row["stored_at"],
                row["expires_at"],
                row["deleted_at"],
                None if row["mechanism"] is None else Mechanism(row["mechanism"]),
            )
            for row in rows
        ),
    )


def _columns(copies: Sequence[HeldCopy]) -> dict[str, list[Any]]:
    return {
        "orgs": [copy.org for copy in copies],
        "jobs": [copy.job for copy in copies],
        "places": [copy.place for copy in copies],
    }
