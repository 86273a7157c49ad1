"""Receipts to sign and to tamper with."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec

from coatcheck.domain.artifacts import ArtifactCopy, ArtifactRecord, Disposal
from coatcheck.domain.ids import from_text
from coatcheck.domain.inputs import Copy, InputRecord, Layer, Mechanism
from coatcheck.receipts import describe, describe_artifact
from coatcheck.receipts.signature import Signer

PEPPER = "the pepper of these tests, 32 or more"
NOON = datetime(2026, 5, 4, 12, 0, 0, 120_000, UTC)


def a_record(*, complete: bool = True) -> InputRecord:
    def later(seconds: float) -> datetime:
        return NOON + timedelta(seconds=seconds)

    copies = (
        Copy(Layer.BLOB, "inputs/d/j/u", NOON, later(3600), later(9), Mechanism.WORKER),
        Copy(Layer.DATABASE, "payload", later(1), None, later(8), Mechanism.END_OF_JOB),
        Copy(
            Layer.DISK, "host-1:/var/tmp/coatcheck-x/y", later(2), None, later(7), Mechanism.WORKER
        ),
    )
    if not complete:
        copies = (replace(copies[0], deleted_at=None, mechanism=None), *copies[1:])
    return InputRecord(
        "ac\u00e7me \u2028",
        from_text("01JX0RECE1PT0RECE1PT0RECE1"),
        "ann",
        "graphs.post__call",
        bytes(range(32)),
        2**40 + 1,
        later(1),
        later(10),
        copies,
    )


def signed(*, complete: bool = True, pepper: str = PEPPER) -> bytes:
    """A receipt as a server answers it."""
    receipt = describe(a_record(complete=complete), "call")
    return msgspec.json.encode(Signer.from_pepper(pepper).sign(receipt))


def signed_artifact(*, complete: bool = True, name: str = "plan.svg") -> bytes:
    """A receipt of an artifact that was replaced once, as a server answers it."""
    first, second, third = (NOON + timedelta(seconds=seconds) for seconds in (1, 2, 3))
    last = ArtifactCopy(second, third, Disposal.OWNER)
    if not complete:
        last = ArtifactCopy(second, None, None)
    record = ArtifactRecord(
        "acme",
        from_text("01JX0RECE1PT0RECE1PT0RECE1"),
        name,
        "user:ann",
        "docs.post__draw",
        "",
        "image/svg+xml",
        6,
        bytes(range(32)),
        third,
        (ArtifactCopy(NOON, first, Disposal.REPLACED), last),
    )
    receipt = describe_artifact(record, "01JX0RECE1PT0RECE1PT0RECE1")
    return msgspec.json.encode(Signer.from_pepper(PEPPER).sign_artifact(receipt))
