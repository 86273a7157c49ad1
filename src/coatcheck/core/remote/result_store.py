"""What goes to a remote and what comes back: the payloads of jobs that a remote target of the
service catalogue runs, and the result stores, which decide per endpoint how a result is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from uuid import UUID

from coatcheck.blobs import BlobContainer
from coatcheck.core.upstream_calls import check_sealed
from coatcheck.domain.catalogue import EndpointSpec
from coatcheck.domain.remote_work import Destination, encode_work
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


OPERATORS_PREFIX: Final = "remotes."
"""In a destination: the prefix of the name of a remote in COATCHECK_REMOTES."""
RETRY_FAILED: Final = "retry_failed"
"""In a destination's note: work that the remote reports as failed is retried, as new work."""
_ANY_BODY: Final = b"null"


def remote_payload(spec: EndpointSpec, given: bytes) -> bytes:
    """The payload of a job. It refers to the target's secrets and holds none: the worker opens
    those that are valid at the call."""
    to = _destination(spec, retry_failed=spec.retries is not None)
    return encode_work(to, given)


def remote_fingerprint(spec: EndpointSpec, given: bytes) -> bytes:
    """The fingerprint of a request. Not of the target, which may have been registered anew."""
    return f"{spec.queue_key}\0".encode() + given


def work_frame(spec: EndpointSpec, retries: int | None = None) -> tuple[bytes, bytes]:
    """The parts of such a payload before and after the input. ``retries`` are those of the batch,
    if it sets some."""
    asked_for = spec.retries if retries is None else retries
    to = _destination(spec, retry_failed=asked_for is not None)
    before, _, after = encode_work(to, _ANY_BODY).rpartition(_ANY_BODY)
    return before, after


def _destination(spec: EndpointSpec, *, retry_failed: bool) -> Destination:
    assert spec.remote is not None
    definition = spec.remote.definition
    note = {RETRY_FAILED: True} if retry_failed else {}
    if definition["adapter"] == "operator":
        name = OPERATORS_PREFIX + definition["name"]
        return Destination(operator=name, note=note, run_seconds=spec.timeout_seconds)
    check_sealed(spec.remote)
    return Destination(
        target=dict(definition),
        secrets_id=spec.remote.secrets_id,
        note=note,
        run_seconds=spec.timeout_seconds,
    )
