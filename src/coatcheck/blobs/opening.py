"""Opens blob stores by URL: ``file``, ``s3``, ``az``, ``abfs``, ``abfss`` and ``gs``.

Credentials, regions and endpoints come from the variables that each store's own tools read.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from obstore.exceptions import BaseError
from obstore.store import LocalStore, ObjectStore, from_url

from coatcheck.domain.errors import SettingsInvalid
from coatcheck.domain.retry import BLOB_BACKOFF, BLOB_RETRIES, Backoff

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

_REQUEST: Final = timedelta(minutes=15)
_CONNECT: Final = timedelta(seconds=5)
_NO_RETRIES: Final[RetryConfig] = {"max_retries": 0}
_ENDPOINTS: Final = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
_NEEDS: Final = {
    "az": "AZURE_STORAGE_ACCOUNT_NAME and a credential such as AZURE_STORAGE_ACCOUNT_KEY",
    "gs": "GOOGLE_SERVICE_ACCOUNT, the path of a readable key file, or an identity of the machine",
    "s3": "AWS_REGION, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or an identity of the machine",
}


@dataclass(frozen=True, slots=True)
class BlobRetryPolicy:
    """Timeout and retries for calls to a blob store."""

    backoff: Backoff = BLOB_BACKOFF
    retries: int = BLOB_RETRIES
    answer: timedelta = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class OpenStore:
    """A store with two handles: the one for deletions does not retry by itself.

    obstore retries idempotent requests. It treats a deletion as not idempotent, because stores
    take it as a POST, and does not retry one that timed out or was partly done. Ours are
    idempotent, so our own code retries them through this handle, and nothing else does.
    """

    store: ObjectStore
    deleting: ObjectStore
    folder: Path | None = None


def open_store(url: str, retry_policy: BlobRetryPolicy) -> OpenStore:
    """Open the store at ``url``. A local folder is created if it is missing."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        folder = Path(unquote(parts.path))
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        local = LocalStore(prefix=folder, automatic_cleanup=True)  # leaves no empty folder per job
        return OpenStore(local, local, folder)
    client_options = _client_options(_family(parts.scheme), retry_policy)
    try:
        return OpenStore(
            from_url(url, client_options=client_options, retry_config=_retries(retry_policy)),
            from_url(url, client_options=client_options, retry_config=_NO_RETRIES),
        )
    except BaseError:
        raise SettingsInvalid(
            "COATCHECK_BLOB_URL: the store cannot be set up from the environment. It needs "
            f"{_NEEDS[_family(parts.scheme)]}; see docs/how-to/blob-stores.md"
        ) from None  # obstore quotes the whole URL


def _family(scheme: str) -> str:
    return "az" if scheme.startswith("abfs") else scheme


def _client_options(family: str, retry_policy: BlobRetryPolicy) -> ClientConfig:
    """Short timeouts for a silent server, a long one for a large blob on a slow connection."""
    options: ClientConfig = {
        "connect_timeout": _CONNECT,
        "read_timeout": retry_policy.answer,
        "timeout": _REQUEST,
    }
    if any(os.environ.get(name, "").startswith("http://") for name in _ENDPOINTS.get(family, ())):
        options["allow_http"] = True  # the operator wrote http:// into the endpoint
    return options


def _retries(retry_policy: BlobRetryPolicy) -> RetryConfig:
    """Backoff for obstore's retries: the first wait is ``base``, each next one lies between that
    and three times the previous one, so that waits double on average."""
    attempts = retry_policy.retries + 1
    return {
        "max_retries": retry_policy.retries,
        "backoff": {
            "init_backoff": timedelta(seconds=retry_policy.backoff.base_seconds),
            "max_backoff": timedelta(seconds=retry_policy.backoff.cap_seconds),
            "base": 3,
        },
        # Long enough for every retry to happen even if each attempt has to time out.
        "retry_timeout": attempts
        * (retry_policy.answer + timedelta(seconds=retry_policy.backoff.cap_seconds)),
    }
