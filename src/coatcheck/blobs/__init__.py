"""What is too large for a row: the bytes of artifacts, in one container."""

from coatcheck.blobs.container import BlobContainer, StoredBlob

__all__ = ["BlobContainer", "StoredBlob"]
