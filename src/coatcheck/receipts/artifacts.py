"""The receipt of an artifact: it says of a job's output what a receipt says of its input."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal

import msgspec

from coatcheck.domain.artifacts import ArtifactCopy, ArtifactRecord
from coatcheck.domain.catalogue import UPSTREAM_ENDPOINT
from coatcheck.receipts.document import VERSION, ReceiptLayer

KIND: Final = "artifact"


class ArtifactReceipt(msgspec.Struct, frozen=True, rename="camel"):
    """Where copies of a job's output file were kept. ``complete`` means that no copy is left.

    ``contentHash`` and ``bytes`` describe the latest file of the name; ``layers`` lists every file
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
    """The receipt of an artifact, as of when its record was read. ``job_id`` is the job's id in the
    API that it was submitted through."""
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
