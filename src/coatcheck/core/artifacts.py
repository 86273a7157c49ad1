"""Artifacts' ends: deleting one, and what is known of those that are gone."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from coatcheck.blobs import BlobContainer
from coatcheck.core.artifact_deleter import ArtifactShredder
from coatcheck.core.queries import artifacts
from coatcheck.db.connection import Line
from coatcheck.db.errors import retried
from coatcheck.domain.artifacts import ArtifactRecord


class ArtifactDesk:
    """For whoever has made sure that the caller may see the job."""

    def __init__(self, line: Line, blobs: Callable[[], BlobContainer]) -> None:
        self._line = line
        self._blobs = blobs

    async def delete(self, org: str, job: UUID, name: str) -> ArtifactRecord | None:
        """Delete an artifact of a job that has ended; what is known of it then.

        None if there was never one of that name. If the blob store is away, the artifact is gone to
        its readers, and its record is complete once upkeep has deleted the blob.
        """
        doomed = await retried(lambda: artifacts.delete(self._line, org, job, name))
        if doomed:
            await ArtifactShredder(self._line, self._blobs()).shred(doomed)
        return await self.record(org, job, name)

    async def record(self, org: str, job: UUID, name: str) -> ArtifactRecord | None:
        """What is known of an artifact: each copy, and what deleted it.

        There until 90 days after it was deleted, whether or not the job still is.
        """
        return await retried(lambda: artifacts.record(self._line, org, job, name))
