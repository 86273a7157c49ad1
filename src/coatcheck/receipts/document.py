"""What a receipt says. Nothing in it shows where our machines keep things."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Final, assert_never

import msgspec

from coatcheck.domain.ids import to_text
from coatcheck.domain.inputs import Copy, InputRecord, Layer

VERSION: Final = 1
_AFTER_HOST: Final = re.compile("[:/]")


class ReceiptLayer(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One copy: when it was stored, and when and by what it was deleted; null while it is there."""

    layer: str
    place: str
    stored_at: datetime
    deleted_at: datetime | None
    mechanism: str | None
    expires_at: datetime | None = None


class Receipt(msgspec.Struct, frozen=True, rename="camel"):
    """Where the archive of a job has been. ``complete`` says that no copy of it is left."""

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
        layers=[_layer(copy) for copy in record.copies],
        complete=record.complete,
        issued_at=record.read_at,
    )


def canonical(value: Any) -> bytes:
    """JSON without a choice: keys in order, no blanks, UTF-8. What is signed."""
    return msgspec.json.encode(value, order="sorted")


def _layer(copy: Copy) -> ReceiptLayer:
    return ReceiptLayer(
        layer=copy.layer.value,
        place=_label(copy),
        stored_at=copy.stored_at,
        deleted_at=copy.deleted_at,
        mechanism=None if copy.mechanism is None else copy.mechanism.value,
        expires_at=copy.expires_at,
    )


def _label(copy: Copy) -> str:
    """A word for a place, never a path or a key of ours."""
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
