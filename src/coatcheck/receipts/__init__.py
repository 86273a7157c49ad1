"""Deletion receipts: signed, offline-verifiable statements of what became of each copy of a job's
input and of the files a job produced."""

from coatcheck.receipts.artifacts import (
    ArtifactReceipt,
    SignedArtifactReceipt,
    describe_artifact,
)
from coatcheck.receipts.document import Receipt, ReceiptLayer, SignedReceipt, describe
from coatcheck.receipts.keys import PublicKey, read_public_keys
from coatcheck.receipts.signature import ReceiptRefused, Signer, verify

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
