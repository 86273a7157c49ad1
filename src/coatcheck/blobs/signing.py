"""Presigned URLs: whoever has one may fetch or put one blob until it expires.

A cloud store signs them itself and serves them directly. A local folder has no server, so there
the control plane signs and serves them (``grants.py``); it does the same if the store's credentials
cannot sign, such as an Azure SAS token. Those URLs begin with a slash, like all URLs in our
responses: they are relative to the server that was asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from coatcheck.blobs.container import BlobContainer
from coatcheck.blobs.grants import Grant, Grants
from coatcheck.domain.limits import LIST_BYTES_MAX, SIGNED_URL_SECONDS_MAX

BLOBS_PATH: Final = "/v1/blobs/"
"""The path under which the control plane serves blobs; a token follows."""


@dataclass(frozen=True, slots=True)
class SignedUrl:
    """A method, URL and headers to fetch or put a blob with, until ``expires_at``."""

    url: str
    method: Literal["GET", "PUT"]
    headers: Mapping[str, str] = field(hash=False)
    expires_at: datetime


class UrlSigner:
    """Signs URLs for the blobs of one container. ``grants`` signs those of the control plane."""

    def __init__(self, container: BlobContainer, grants: Grants) -> None:
        self._container = container
        self.grants = grants

    async def signed_get(
        self,
        key: str,
        seconds: int,
        *,
        file_name: str | None = None,
        media_type: str | None = None,
    ) -> SignedUrl:
        """A URL to fetch a blob from, valid for ``seconds``.

        ``file_name`` and ``media_type`` apply if the control plane serves the blob. A cloud store
        sends those that were set when the blob was put (``BlobContainer.put``).
        """
        expires_at = _expiry(seconds)
        url = await self._signed_by_store("GET", key, seconds)
        if url is None:
            url = self._signed_here(Grant("GET", key, _unix(expires_at), file_name, media_type))
        return SignedUrl(url, "GET", {}, expires_at)

    async def signed_put(
        self, key: str, seconds: int, media_type: str, *, bytes_max: int = LIST_BYTES_MAX
    ) -> SignedUrl:
        """A URL to put a blob to. The request must start within ``seconds``, not finish.

        A cloud store does not enforce ``bytes_max``: the reader of the blob checks its size.
        """
        expires_at = _expiry(seconds)
        headers = {"Content-Type": media_type}
        url = await self._signed_by_store("PUT", key, seconds)
        if url is None:
            url = self._signed_here(Grant("PUT", key, _unix(expires_at), bytes_max=bytes_max))
        else:
            headers |= self._container.upload_headers
        return SignedUrl(url, "PUT", headers, expires_at)

    async def _signed_by_store(
        self, method: Literal["GET", "PUT"], key: str, seconds: int
    ) -> str | None:
        return await self._container.signed_url(method, key, timedelta(seconds=seconds))

    def _signed_here(self, grant: Grant) -> str:
        return BLOBS_PATH + self.grants.token(grant)


def _expiry(seconds: int) -> datetime:
    if not 1 <= seconds <= SIGNED_URL_SECONDS_MAX:
        raise ValueError(f"a signed URL lasts from 1 to {SIGNED_URL_SECONDS_MAX} seconds")
    return datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=seconds)


def _unix(when: datetime) -> int:
    return int(when.timestamp())
