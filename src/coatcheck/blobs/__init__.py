"""What is too large for a row: the bytes of artifacts and inputs, in one container."""

from coatcheck.blobs.container import BlobContainer, StoredBlob
from coatcheck.blobs.opening import Patience

__all__ = ["BlobContainer", "Patience", "StoredBlob"]
