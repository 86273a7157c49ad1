"""Result stores: decide per endpoint how a remote's result is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import UUID

from coatcheck.blobs import BlobContainer
from coatcheck.remotes.protocol import RemoteResult


@dataclass(frozen=True, slots=True)
class ResultOf:
    """The job of a result. ``note`` is what its payload says to the result store."""

    org: str
    job: UUID
    endpoint: str
    owner: str
    deployment: UUID
    note: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class StoredArtifact:
    """A blob that is stored whole, and becomes the job's artifact when the job completes."""

    name: str
    blob_key: str
    media_type: str
    size: int
    sha256: bytes


@dataclass(frozen=True, slots=True)
class StoredOutput:
    """The job's result, as JSON, and its file."""

    result: bytes
    artifact: StoredArtifact | None = None


class ResultStore(Protocol):
    """Stores the results of one endpoint's jobs."""

    def fails_for_good(self, of: ResultOf) -> bool:
        """Whether work that the remote reports as failed is not retried."""
        ...

    def blob_key(self, of: ResultOf) -> str | None:
        """The key under which the result is stored, if it is always the same: it is deleted unless
        the job completes. None if each upload has its own."""
        ...

    async def keep(self, of: ResultOf, result: RemoteResult, blobs: BlobContainer) -> StoredOutput:
        """Store the result, piece by piece. Raises RemoteError and BlobStoreUnavailable; partial
        blobs are deleted by the store or by the sweeper."""
        ...
