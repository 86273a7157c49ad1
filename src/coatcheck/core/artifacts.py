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
from coatcheck.db.errors import retried
from coatcheck.domain.artifacts import ArtifactRecord, DoomedBlob
from coatcheck.domain.ids import to_text
from coatcheck.domain.inputs import HeldCopy, Mechanism

_log = logging.getLogger(__name__)
_DELETIONS_AT_ONCE_MAX: Final = 8
_DELETION_SECONDS_MAX: Final = 30.0


class JobBlob(Protocol):
    """Something that is a job's."""

    @property
    def job(self) -> UUID: ...


Doomed = TypeVar("Doomed", bound=JobBlob)


class BlobDeletions(Generic[Doomed]):
    """One that cannot be deleted is logged, and does not hold up others: upkeep tries it again.

    ``what`` it is that ``delete`` deletes, for the log.
    """

    def __init__(self, what: str, delete: Callable[[Doomed], Awaitable[None]]) -> None:
        self._what = what
        self._delete = delete
        self._turns = asyncio.Semaphore(_DELETIONS_AT_ONCE_MAX)

    async def of(self, doomed: Sequence[Doomed]) -> list[Doomed]:
        """Delete these. Those that are gone now."""
        deleted = await asyncio.gather(*map(self._try, doomed))
        return [each for each, done in zip(doomed, deleted, strict=True) if done]

    async def _try(self, doomed: Doomed) -> bool:
        async with self._turns:
            try:
                async with asyncio.timeout(_DELETION_SECONDS_MAX):
                    await self._delete(doomed)
            except Exception as error:  # noqa: BLE001 - of whatever kind: it is tried again
                # Its type alone: a store's message may quote its address or what it was sent.
                _log.warning(
                    "%s could not be deleted; it is tried again: %s",
                    self._what,
                    type(error).__name__,
                    extra={"job_id": to_text(doomed.job)},
                )
                return False
        return True


class ArtifactDeleter:
    """Deletes artifacts' blobs, many at a time. What it cannot delete is tried again by upkeep
    (``maintenance/retention.py``)."""

    def __init__(self, db: Connection, blobs: BlobContainer) -> None:
        self._db = db
        self._blobs = blobs
        self._deletions = BlobDeletions("an artifact", self._delete)

    async def shred(self, doomed: Sequence[DoomedBlob]) -> int:
        """Delete these blobs. How many are gone now."""
        gone = await self._deletions.of(doomed)
        if gone:
            await retried(lambda: artifacts.close(self._db, gone))
        return len(gone)

    async def _delete(self, blob: DoomedBlob) -> None:
        await self._blobs.delete([blob.blob_key])


class InputDeleter:
    """Deletes inputs, many at a time."""

    def __init__(self, db: Connection, blobs: BlobContainer) -> None:
        self._db = db
        self._blobs = blobs
        self._deletions = BlobDeletions("an input", self._delete)

    async def shred(self, copies: Sequence[tuple[HeldCopy, Mechanism]]) -> int:
        """Delete these blobs. How many are gone now."""
        deleted = {*await self._deletions.of([copy for copy, _ in copies])}
        gone = [each for each in copies if each[0] in deleted]
        if gone:
            crash_point("input.blob_deleted_not_marked")
            await retried(lambda: inputs.mark_deleted(self._db, gone))
            crash_point("input.marked")
        return len(gone)

    async def _delete(self, copy: HeldCopy) -> None:
        await delete_pieces(self._blobs, copy.place)


class ArtifactRepository:
    """For whoever has made sure that the caller may see the job."""

    def __init__(self, db: Connection, blobs: Callable[[], BlobContainer]) -> None:
        self._db = db
        self._blobs = blobs

    async def delete(self, org: str, job: UUID, name: str) -> ArtifactRecord | None:
        """Delete an artifact of a job that has ended; what is known of it then.

        None if there was never one of that name. If the blob store is away, the artifact is gone to
        its readers, and its record is complete once upkeep has deleted the blob.
        """
        doomed = await retried(lambda: artifacts.delete(self._db, org, job, name))
        if doomed:
            await ArtifactDeleter(self._db, self._blobs()).shred(doomed)
        return await self.record(org, job, name)

    async def record(self, org: str, job: UUID, name: str) -> ArtifactRecord | None:
        """What is known of an artifact: each copy, and what deleted it.

        There until 90 days after it was deleted, whether or not the job still is.
        """
        return await retried(lambda: artifacts.record(self._db, org, job, name))
