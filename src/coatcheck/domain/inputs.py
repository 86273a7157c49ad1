"""What a job was handed in with, and every copy of it that exists or existed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID


class Layer(StrEnum):
    """Where a copy of a customer's bytes, or what leads to them, can lie."""

    BLOB = "blob"
    DISK = "disk"
    DATABASE = "database"


class Mechanism(StrEnum):
    """What deleted a copy. The comment says when it does."""

    WORKER = "worker"  # the worker of the job, as soon as its end was committed
    UPKEEP = "upkeep"  # an upkeep loop, which found that the job had ended
    TTL = "ttl"  # an upkeep loop: its time was up, whatever the job was doing
    SWEEP = "sweep"  # another worker of the same machine, after the job's own had died
    END_OF_JOB = "end_of_job"  # the statement that ended the job


@dataclass(frozen=True, slots=True)
class StoredInput:
    """Bytes that lie in the blob store, in pieces under ``blob_key``, for a job about to be made.

    ``age_seconds`` is how long ago its first piece was stored: its time to live began then.
    """

    blob_key: str
    size: int
    pieces: int
    sha256: bytes
    age_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class HeldCopy:
    """A copy that is not deleted yet. ``place`` is its blob key, or its host and folder."""

    org: str
    job: UUID
    place: str


@dataclass(frozen=True, slots=True)
class DueCopy:
    """A blob whose time has come, and why: its job has ended, or its time to live has."""

    copy: HeldCopy
    mechanism: Mechanism
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Copy:
    """One line of a receipt."""

    layer: Layer
    place: str
    stored_at: datetime
    expires_at: datetime | None
    deleted_at: datetime | None
    mechanism: Mechanism | None


@dataclass(frozen=True, slots=True)
class InputRecord:
    """What is known of a job's input. It outlives the job, the bytes and all their copies."""

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
        """Whether no copy is left. None can be added then: the job has ended, and only the holder
        of its lease adds copies."""
        return all(copy.deleted_at is not None for copy in self.copies)
