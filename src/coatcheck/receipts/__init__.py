"""Deletion receipts: signed, offline-verifiable statements of what became of each copy of a job's
input and of the files a job produced."""

from coatcheck.receipts.document import (
    ArtifactReceipt,
    Receipt,
    ReceiptLayer,
    SignedArtifactReceipt,
    SignedReceipt,
    describe,
    describe_artifact,
)
from coatcheck.receipts.signature import PublicKey, ReceiptRefused, Signer, read_public_keys, verify

__all__ = [
    "ArtifactReceipt",
    "PublicKey",
    "Receipt",
    "ReceiptLayer",
    "ReceiptRefused",
    "SignedArtifactReceipt",
    "SignedReceipt",
    "Signer",
    "describe",
    "describe_artifact",
    "read_public_keys",
    "verify",
]
