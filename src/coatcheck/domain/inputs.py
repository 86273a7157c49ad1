"""A job's input, and every copy of it that exists or existed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID


@dataclass(frozen=True, slots=True)
class StagedUpload:
    """A place to upload a file. ``is_expired`` is by the database's clock; ``used_by`` is the id of
    whatever uses the file."""

    org: str
    uuid: UUID
    owner: str
    blob_key: str
    created_at: datetime
    expires_at: datetime
    is_expired: bool
    used_by: UUID | None

    @property
    def is_used(self) -> bool:
        """Whether its file is an input, and must not change."""
        return self.used_by is not None


class Layer(StrEnum):
    """Where a copy of a customer's bytes, or a reference to them, can be."""

    BLOB = "blob"
    DISK = "disk"
    DATABASE = "database"


class Mechanism(StrEnum):
    """What deleted a copy. The comment says when."""

    WORKER = "worker"  # the job's worker, as soon as the job's end was committed
    UPKEEP = "upkeep"  # a maintenance loop, because the job had ended
    TTL = "ttl"  # a maintenance loop, because its time to live had ended
    SWEEP = "sweep"  # another worker on the same machine, after the job's own had died
    END_OF_JOB = "end_of_job"  # the statement that ended the job


@dataclass(frozen=True, slots=True)
class StoredInput:
    """Bytes in the blob store, in pieces under ``blob_key``, for a job about to be created.

    ``age_seconds`` is how long ago its first piece was stored, which started its time to live.
    """

    blob_key: str
    size: int
    pieces: int
    sha256: bytes
    age_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class HeldCopy:
    """A copy that is not yet deleted. ``place`` is its blob key, or its host and folder."""

    org: str
    job: UUID
    place: str


@dataclass(frozen=True, slots=True)
class DueCopy:
    """A blob that is due for deletion, and why: its job or its time to live has ended."""

    copy: HeldCopy
    mechanism: Mechanism
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy in a receipt."""

    layer: Layer
    place: str
    stored_at: datetime
    expires_at: datetime | None
    deleted_at: datetime | None
    mechanism: Mechanism | None


@dataclass(frozen=True, slots=True)
class InputRecord:
    """The record of a job's input. It outlives the job, the bytes and all their copies."""

    org: str
    job: UUID
    owner: str
    endpoint: str
    sha256: bytes
    size: int
    received_at: datetime
    read_at: datetime
    copies: tuple[Copy, ...]

    @property
    def complete(self) -> bool:
        """Whether no copy is left. Then none can be added: the job has ended, and only the holder
        of its lease adds copies."""
        return all(copy.deleted_at is not None for copy in self.copies)
