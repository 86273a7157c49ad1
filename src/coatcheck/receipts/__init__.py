"""Deletion receipts: signed, offline-verifiable statements of what became of each copy of a job's
input and of the files a job produced.

``signature`` signs and verifies them. Import it where that happens: it loads 10 MB of cryptography.
"""

from coatcheck.receipts.document import (
    ArtifactReceipt,
    Receipt,
    ReceiptLayer,
    SignedArtifactReceipt,
    SignedReceipt,
    describe,
    describe_artifact,
)

__all__ = [
    "ArtifactReceipt",
    "Receipt",
    "ReceiptLayer",
    "SignedArtifactReceipt",
    "SignedReceipt",
    "describe",
    "describe_artifact",
]
