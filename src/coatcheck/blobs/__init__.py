"""Blob storage in one container, for data too large for a row: artifacts, inputs, task lists
and exports."""

from coatcheck.blobs.container import BlobContainer, BlobHead, BlobRetryPolicy, StoredBlob
from coatcheck.blobs.signing import SignedUrl, UrlSigner

__all__ = ["BlobContainer", "BlobHead", "BlobRetryPolicy", "SignedUrl", "StoredBlob", "UrlSigner"]
