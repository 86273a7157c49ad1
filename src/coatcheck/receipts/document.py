"""The contents of a receipt. It reveals nothing about where our machines keep things."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Final, Literal, assert_never

import msgspec

from coatcheck.domain.artifacts import ArtifactCopy, ArtifactRecord
from coatcheck.domain.catalogue import UPSTREAM_ENDPOINT
from coatcheck.domain.ids import to_text
from coatcheck.domain.inputs import Copy, InputRecord, Layer

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
        endpoint=(upstream and record.queue_key) or record.endpoint,
        name=record.name,
        media_type=record.media_type,
        content_hash=f"sha256:{record.sha256.hex()}",
        bytes=record.size,
        layers=[*map(_artifact_layer, record.copies)],
        complete=record.complete,
        issued_at=record.read_at,
    )


def _artifact_layer(copy: ArtifactCopy) -> ReceiptLayer:
    return ReceiptLayer(
        layer="blob",
        place="blob store",
        stored_at=copy.stored_at,
        deleted_at=copy.deleted_at,
        mechanism=None if copy.disposal is None else copy.disposal.value,
    )


VERSION: Final = 1
_AFTER_HOST: Final = re.compile("[:/]")


class ReceiptLayer(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One copy: when it was stored, and when and how it was deleted; null while it exists."""

    layer: str
    place: str
    stored_at: datetime
    deleted_at: datetime | None
    mechanism: str | None
    expires_at: datetime | None = None


class Receipt(msgspec.Struct, frozen=True, rename="camel"):
    """Where copies of a job's archive were kept. ``complete`` means that no copy is left."""

    version: int
    job_id: str
    org_id: str
    operation: str
    content_hash: str
    bytes: int
    received_at: datetime
    layers: list[ReceiptLayer]
    complete: bool
    issued_at: datetime


class SignedReceipt(msgspec.Struct, frozen=True):
    """A receipt, and its canonical JSON as a compact JWS (EdDSA)."""

    receipt: Receipt
    signature: str


def describe(record: InputRecord, operation: str) -> Receipt:
    """The receipt of an input, as of when its record was read."""
    return Receipt(
        version=VERSION,
        job_id=to_text(record.job),
        org_id=record.org,
        operation=operation,
        content_hash=f"sha256:{record.sha256.hex()}",
        bytes=record.size,
        received_at=record.received_at,
        layers=[_document_layer(copy) for copy in record.copies],
        complete=record.complete,
        issued_at=record.read_at,
    )


def canonical(value: Any) -> bytes:
    """Canonical JSON, which is what gets signed: sorted keys, no blanks, UTF-8."""
    return msgspec.json.encode(value, order="sorted")


def _document_layer(copy: Copy) -> ReceiptLayer:
    return ReceiptLayer(
        layer=copy.layer.value,
        place=_label(copy),
        stored_at=copy.stored_at,
        deleted_at=copy.deleted_at,
        mechanism=None if copy.mechanism is None else copy.mechanism.value,
        expires_at=copy.expires_at,
    )


def _label(copy: Copy) -> str:
    """A name for a place, never one of our paths or keys."""
    match copy.layer:
        case Layer.BLOB:
            return "blob store"
        case Layer.DISK:
            host, *_ = _AFTER_HOST.split(copy.place, maxsplit=1)
            return host
        case Layer.DATABASE:
            return "job row"
        case _:
            assert_never(copy.layer)
