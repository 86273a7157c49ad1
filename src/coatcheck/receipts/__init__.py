"""Deletion receipts: what became of each copy of a job's input, signed, to be verified offline."""

from coatcheck.receipts.document import Receipt, ReceiptLayer, SignedReceipt, describe
from coatcheck.receipts.keys import PublicKey, read_public_keys
from coatcheck.receipts.signature import ReceiptRefused, Signer, verify

__all__ = [
    "PublicKey",
    "Receipt",
    "ReceiptLayer",
    "ReceiptRefused",
    "SignedReceipt",
    "Signer",
    "describe",
    "read_public_keys",
    "verify",
]
