"""What is too large for a row, in one container: artifacts, inputs, lists, exports."""

from coatcheck.blobs.container import BlobContainer, BlobHead, StoredBlob
from coatcheck.blobs.opening import Patience
from coatcheck.blobs.signing import SignedUrl, UrlSigner

__all__ = ["BlobContainer", "BlobHead", "Patience", "SignedUrl", "StoredBlob", "UrlSigner"]
