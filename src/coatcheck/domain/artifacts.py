"""What is known of a job's artifacts, also when they are gone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID


class Disposal(StrEnum):
    """What deleted an artifact. The comment says when it does."""

    RETENTION = "retention"  # the retention of its job has ended
    OWNER = "owner"  # somebody who may see the job asked for it
    REPLACED = "replaced"  # its job attached another of the same name
    BATCH_REMOVED = "batch_removed"  # the batch that its job is a task of was removed


class DoomedBlob(NamedTuple):
    """A blob whose artifact is gone, and that is not known to be deleted yet."""

    org: str
    job: UUID
    seq: int
    blob_key: str


class LeftBlob(NamedTuple):
    """One that whoever doomed it has left behind, and since when."""

    blob: DoomedBlob
    deleting_at: datetime


@dataclass(frozen=True, slots=True)
class ArtifactCopy:
    """One line of a receipt."""

    stored_at: datetime
    deleted_at: datetime | None
    disposal: Disposal | None


@dataclass(frozen=True, slots=True)
class ArtifactRecord:
    """What is known of the artifact of a name. It outlives the artifact and the job.

    ``size`` and ``sha256`` are those of the last blob; ``copies`` has every one that was stored.
    """

    org: str
    job: UUID
    name: str
    owner: str
    endpoint: str
    flow: str
    media_type: str
    size: int
    sha256: bytes
    read_at: datetime
    copies: tuple[ArtifactCopy, ...]

    @property
    def complete(self) -> bool:
        """Whether no copy is left."""
        return all(copy.deleted_at is not None for copy in self.copies)
