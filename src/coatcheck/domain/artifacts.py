"""Records of a job's artifacts, which outlive the artifacts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID


class Disposal(StrEnum):
    """What deleted an artifact. The comment says when."""

    RETENTION = "retention"  # the retention of its job has ended
    OWNER = "owner"  # somebody who may see the job deleted it
    REPLACED = "replaced"  # its job attached another one with the same name
    BATCH_REMOVED = "batch_removed"  # the batch of its task was deleted


class BlobToDelete(NamedTuple):
    """A blob without an artifact that is not yet known to be deleted."""

    org: str
    job: UUID
    seq: int
    blob_key: str


class LeftoverBlob(NamedTuple):
    """A blob that was marked for deletion and then left behind, and since when."""

    blob: BlobToDelete
    deleting_at: datetime


@dataclass(frozen=True, slots=True)
class ArtifactCopy:
    """One copy in a receipt."""

    stored_at: datetime
    deleted_at: datetime | None
    disposal: Disposal | None


@dataclass(frozen=True, slots=True)
class ArtifactRecord:
    """The record of an artifact of one name. It outlives the artifact and the job.

    ``size`` and ``sha256`` are those of the last blob; ``copies`` lists every stored one.
    """

    org: str
    job: UUID
    name: str
    owner: str
    endpoint: str
    queue_key: str
    media_type: str
    size: int
    sha256: bytes
    read_at: datetime
    copies: tuple[ArtifactCopy, ...]

    @property
    def complete(self) -> bool:
        """Whether no copy is left."""
        return all(copy.deleted_at is not None for copy in self.copies)
