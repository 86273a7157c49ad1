"""What becomes of a remote's result: its endpoint's keeper says what is stored, and where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import UUID

from coatcheck.blobs import BlobContainer
from coatcheck.remotes.protocol import RemoteResult


@dataclass(frozen=True, slots=True)
class ResultOf:
    """The job whose result is kept. ``note`` is what its payload says for the keeper."""

    org: str
    job: UUID
    endpoint: str
    owner: str
    deployment: UUID
    note: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class StoredArtifact:
    """A blob that is stored, whole, and becomes the job's artifact when the job completes."""

    name: str
    blob_key: str
    media_type: str
    size: int
    sha256: bytes


@dataclass(frozen=True, slots=True)
class StoredOutput:
    """The job's result, as JSON, and the file that goes with it."""

    result: bytes
    artifact: StoredArtifact | None = None


class ResultStore(Protocol):
    """Keeps the results of one endpoint's jobs."""

    def fails_for_good(self, of: ResultOf) -> bool:
        """Whether what the remote says has failed is not tried again."""
        ...

    def blob_key(self, of: ResultOf) -> str | None:
        """The one key under which the result is stored, if it is always the same: it is deleted if
        the job ends otherwise than completed. None if each upload has its own."""
        ...

    async def keep(self, of: ResultOf, result: RemoteResult, blobs: BlobContainer) -> StoredOutput:
        """Store what comes, piece by piece. Raises RemoteError and BlobStoreUnavailable; what was
        stored by then is the keeper's to delete, or the sweeper's."""
        ...
