"""What the receipt of an artifact says: the same of a job's output as a receipt of its input."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal

import msgspec

from coatcheck.domain.artifacts import ArtifactCopy, ArtifactRecord
from coatcheck.domain.catalogue import UPSTREAM_ENDPOINT
from coatcheck.receipts.document import VERSION, ReceiptLayer

KIND: Final = "artifact"


class ArtifactReceipt(msgspec.Struct, frozen=True, rename="camel"):
    """Where a file that a job made has been. ``complete`` says that no copy of it is left.

    ``contentHash`` and ``bytes`` are those of the last file of the name; ``layers`` has every one
    that the job stored under it.
    """

    version: int
    kind: Literal["artifact"]
    job_id: str
    org_id: str
    endpoint: str
    name: str
    media_type: str
    content_hash: str
    bytes: int
    layers: list[ReceiptLayer]
    complete: bool
    issued_at: datetime


class SignedArtifactReceipt(msgspec.Struct, frozen=True):
    """A receipt, and its canonical JSON as a compact JWS (EdDSA)."""

    receipt: ArtifactReceipt
    signature: str


def describe_artifact(record: ArtifactRecord, job_id: str) -> ArtifactReceipt:
    """The receipt of an artifact, as of when its record was read. ``job_id`` is what its surface
    calls the job."""
    upstream = record.endpoint == UPSTREAM_ENDPOINT
    return ArtifactReceipt(
        version=VERSION,
        kind=KIND,
        job_id=job_id,
        org_id=record.org,
        endpoint=(upstream and record.flow) or record.endpoint,
        name=record.name,
        media_type=record.media_type,
        content_hash=f"sha256:{record.sha256.hex()}",
        bytes=record.size,
        layers=[*map(_layer, record.copies)],
        complete=record.complete,
        issued_at=record.read_at,
    )


def _layer(copy: ArtifactCopy) -> ReceiptLayer:
    return ReceiptLayer(
        layer="blob",
        place="blob store",
        stored_at=copy.stored_at,
        deleted_at=copy.deleted_at,
        mechanism=None if copy.disposal is None else copy.disposal.value,
    )
