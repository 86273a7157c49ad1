"""Artifacts and inputs in the blob store: their records, and their deletion."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, Protocol, TypeVar
from uuid import UUID

from coatcheck.blobs import BlobContainer
from coatcheck.blobs.pieces import delete_pieces
from coatcheck.core.queries import artifacts, inputs
from coatcheck.crash import crash_point
from coatcheck.db.connection import Connection
from coatcheck.domain.artifacts import ArtifactRecord, BlobToDelete
from coatcheck.domain.ids import to_text
from coatcheck.domain.inputs import HeldCopy, Mechanism

_log = logging.getLogger(__name__)
_DELETIONS_AT_ONCE_MAX: Final = 8
_DELETION_SECONDS_MAX: Final = 30.0


class JobBlob(Protocol):
    """Anything that belongs to a job and is stored in the blob store."""

    @property
    def job(self) -> UUID: ...


Doomed = TypeVar("Doomed", bound=JobBlob)


class BlobDeletions(Generic[Doomed]):
    """Deletes blobs, several at a time.

    A blob that cannot be deleted is logged and does not hold up the others; maintenance tries it
    again. ``what`` names the kind of blob in the log.
    """

    def __init__(self, what: str, delete: Callable[[Doomed], Awaitable[None]]) -> None:
        self._what = what
        self._delete = delete
        self._slots = asyncio.Semaphore(_DELETIONS_AT_ONCE_MAX)

    async def delete(self, doomed: Sequence[Doomed]) -> list[Doomed]:
        """Delete these blobs. Returns those that were deleted."""
        deleted = await asyncio.gather(*map(self._try, doomed))
        return [each for each, done in zip(doomed, deleted, strict=True) if done]

    async def _try(self, doomed: Doomed) -> bool:
        async with self._slots:
            try:
                async with asyncio.timeout(_DELETION_SECONDS_MAX):
                    await self._delete(doomed)
            except Exception as error:  # noqa: BLE001 - whatever the cause, it is tried again
                # The type alone: a store's message may quote its address or the data it was sent.
                _log.warning(
                    "%s could not be deleted and is tried again: %s",
                    self._what,
                    type(error).__name__,
                    extra={"job_id": to_text(doomed.job)},
                )
                return False
        return True


class ArtifactDeleter:
    """Deletes the blobs of artifacts. Maintenance (``maintenance/retention.py``) tries again what
    could not be deleted."""

    def __init__(self, db: Connection, blobs: BlobContainer) -> None:
        self._db = db
        self._blobs = blobs
        self._deletions = BlobDeletions("an artifact", self._delete)

    async def delete(self, doomed: Sequence[BlobToDelete]) -> int:
        """Delete these blobs and close their records. Returns how many were deleted."""
        gone = await self._deletions.delete(doomed)
        if gone:
            await artifacts.close(self._db, gone)
        return len(gone)

    async def _delete(self, blob: BlobToDelete) -> None:
        await self._blobs.delete([blob.blob_key])


class InputDeleter:
    """Deletes the blobs of inputs."""

    def __init__(self, db: Connection, blobs: BlobContainer) -> None:
        self._db = db
        self._blobs = blobs
        self._deletions = BlobDeletions("an input", self._delete)

    async def delete(self, copies: Sequence[tuple[HeldCopy, Mechanism]]) -> int:
        """Delete these blobs and mark them deleted. Returns how many were deleted."""
        deleted = {*await self._deletions.delete([copy for copy, _ in copies])}
        gone = [each for each in copies if each[0] in deleted]
        if gone:
            crash_point("input.blob_deleted_not_marked")
            await inputs.mark_deleted(self._db, gone)
            crash_point("input.marked")
        return len(gone)

    async def _delete(self, copy: HeldCopy) -> None:
        await delete_pieces(self._blobs, copy.place)


class ArtifactRepository:
    """Deletes artifacts and reads their records. The caller checks who may see the job."""

    def __init__(self, db: Connection, blobs: Callable[[], BlobContainer]) -> None:
        self._db = db
        self._blobs = blobs

    async def delete(self, org: str, job: UUID, name: str) -> ArtifactRecord | None:
        """Delete an artifact of a job that has ended, and return its record.

        None if the job never had an artifact of that name. While the blob store is down, readers no
        longer see the artifact, and maintenance completes the record when it has deleted the blob.
        """
        doomed = await artifacts.delete(self._db, org, job, name)
        if doomed:
            await ArtifactDeleter(self._db, self._blobs()).delete(doomed)
        return await self.record(org, job, name)

    async def record(self, org: str, job: UUID, name: str) -> ArtifactRecord | None:
        """The record of an artifact: each copy, and what deleted it.

        Kept until 90 days after the deletion, whether or not the job still exists.
        """
        return await artifacts.record(self._db, org, job, name)
