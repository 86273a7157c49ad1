"""URLs by which anybody who has them may fetch or put one blob, for a while.

A cloud store signs them itself, and is spoken to directly. A folder has no server: there they are
URLs of the control plane (``grants.py``), and so they are where a store's credentials cannot sign,
such as an Azure SAS token. Those begin with a slash, as all URLs in our answers do: they are on the
server that was asked.
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
"""Where the control plane serves what it has signed; a token follows."""


@dataclass(frozen=True, slots=True)
class SignedUrl:
    """How to fetch or put a blob: this method on this URL, with these headers, until then."""

    url: str
    method: Literal["GET", "PUT"]
    headers: Mapping[str, str] = field(hash=False)
    expires_at: datetime


class UrlSigner:
    """Signs URLs of the blobs of one container. ``grants`` are for the control plane's own."""

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
        """A URL to fetch a blob from, good for so many ``seconds``.

        ``file_name`` and ``media_type`` are for what the control plane serves itself: a cloud store
        says what it was told when the blob was put (``BlobContainer.put``).
        """
        expires_at = _expiry(seconds)
        url = await self._by_the_store("GET", key, seconds)
        if url is None:
            url = self._by_us(Grant("GET", key, _unix(expires_at), file_name, media_type))
        return SignedUrl(url, "GET", {}, expires_at)

    async def signed_put(
        self, key: str, seconds: int, media_type: str, *, bytes_max: int = LIST_BYTES_MAX
    ) -> SignedUrl:
        """A URL to put a blob to. ``seconds`` are for the request to begin, not to end.

        A cloud store does not know of ``bytes_max``: whoever reads the blob looks at its size.
        """
        expires_at = _expiry(seconds)
        headers = {"Content-Type": media_type}
        url = await self._by_the_store("PUT", key, seconds)
        if url is None:
            url = self._by_us(Grant("PUT", key, _unix(expires_at), bytes_max=bytes_max))
        else:
            headers |= self._container.upload_headers
        return SignedUrl(url, "PUT", headers, expires_at)

    async def _by_the_store(
        self, method: Literal["GET", "PUT"], key: str, seconds: int
    ) -> str | None:
        return await self._container.signed_url(method, key, timedelta(seconds=seconds))

    def _by_us(self, grant: Grant) -> str:
        return BLOBS_PATH + self.grants.token(grant)


def _expiry(seconds: int) -> datetime:
    if not 1 <= seconds <= SIGNED_URL_SECONDS_MAX:
        raise ValueError(f"a URL is signed for 1 to {SIGNED_URL_SECONDS_MAX} seconds")
    return datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=seconds)


def _unix(when: datetime) -> int:
    return int(when.timestamp())
