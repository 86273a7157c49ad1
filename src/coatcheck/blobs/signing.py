"""Presigned URLs: whoever has one may fetch or put one blob until it expires.

A cloud store signs them itself and serves them directly. A local folder has no server, so
``coatcheck serve`` signs and serves them there. It does the same if the store's credentials cannot
sign, such as an Azure SAS token. Those URLs begin with a slash, like all URLs in our responses:
they are relative to the server that answers.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

import msgspec

from coatcheck.blobs.container import BlobContainer
from coatcheck.domain.errors import NotFound, SignedUrlExpired
from coatcheck.domain.limits import LIST_BYTES_MAX, SIGNED_URL_SECONDS_MAX
from coatcheck.sealing import derived

_LABEL: Final = "coatcheck/blobs/hmac-sha256/v1"
_KEY_BYTES: Final = 32
_MAC_BYTES: Final = hashlib.sha256().digest_size
_TOKEN_CHARACTERS_MAX: Final = 8 * 1024


class Grant(msgspec.Struct, frozen=True, array_like=True):
    """One permission. ``expires`` is a Unix time; ``bytes_max`` limits a PUT; the names are for a
    GET."""

    method: Literal["GET", "PUT"]
    key: str
    expires: int
    file_name: str | None = None
    media_type: str | None = None
    bytes_max: int | None = None


class Grants:
    """Signs grants and verifies signed ones."""

    def __init__(self, pepper: str) -> None:
        self._key = derived(pepper, _LABEL, _KEY_BYTES)

    def token(self, grant: Grant) -> str:
        """A grant encoded as one path segment."""
        payload = msgspec.msgpack.encode(grant)
        return base64.urlsafe_b64encode(self._mac(payload) + payload).rstrip(b"=").decode()

    def read(self, token: str, method: Literal["GET", "PUT"], now: datetime) -> Grant:
        """Decode and verify the grant in a token, for this method.

        Raises SignedUrlExpired if it has expired, and NotFound for anything else that is not a
        valid grant; the error does not say what is wrong.
        """
        raw = _decoded(token)
        mac, payload = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(payload)):
            raise NotFound
        grant = msgspec.msgpack.decode(payload, type=Grant)
        if grant.method != method:
            raise NotFound
        if grant.expires <= now.timestamp():
            raise SignedUrlExpired("This URL has expired. Request a new one where you got it.")
        return grant

    def _mac(self, payload: bytes) -> bytes:
        return hmac.digest(self._key, payload, "sha256")


def _decoded(token: str) -> bytes:
    """The bytes of a token in canonical base64url; empty otherwise."""
    if len(token) > _TOKEN_CHARACTERS_MAX or not token.isascii():
        return b""
    padded = token.encode() + b"=" * (-len(token) % 4)
    try:
        raw = base64.b64decode(padded, altchars=b"-_", validate=True)
    except binascii.Error:
        return b""
    canonical = base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
    return raw if canonical == token else b""


BLOBS_PATH: Final = "/v1/blobs/"
"""The path under which ``coatcheck serve`` serves blobs; a token follows."""


@dataclass(frozen=True, slots=True)
class SignedUrl:
    """A method, URL and headers to fetch or put a blob with, until ``expires_at``."""

    url: str
    method: Literal["GET", "PUT"]
    headers: Mapping[str, str] = field(hash=False)
    expires_at: datetime


class UrlSigner:
    """Signs URLs for the blobs of one container. ``grants`` signs those of our own server."""

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

        ``file_name`` and ``media_type`` apply if our own server serves the blob. A cloud store
        sends those that were set when the blob was put (``BlobContainer.put``).
        """
        expires_at = _expiry(seconds)
        url = await self._container.signed_url("GET", key, timedelta(seconds=seconds))
        if url is None:
            expires = int(expires_at.timestamp())
            url = self._signed_here(Grant("GET", key, expires, file_name, media_type))
        return SignedUrl(url, "GET", {}, expires_at)

    async def signed_put(
        self, key: str, seconds: int, media_type: str, *, bytes_max: int = LIST_BYTES_MAX
    ) -> SignedUrl:
        """A URL to put a blob to. The request must start within ``seconds``, not finish.

        A cloud store does not enforce ``bytes_max``: the reader of the blob checks its size.
        """
        expires_at = _expiry(seconds)
        headers = {"Content-Type": media_type}
        url = await self._container.signed_url("PUT", key, timedelta(seconds=seconds))
        if url is None:
            expires = int(expires_at.timestamp())
            url = self._signed_here(Grant("PUT", key, expires, bytes_max=bytes_max))
        else:
            headers |= self._container.upload_headers
        return SignedUrl(url, "PUT", headers, expires_at)

    def _signed_here(self, grant: Grant) -> str:
        return BLOBS_PATH + self.grants.token(grant)


def _expiry(seconds: int) -> datetime:
    if not 1 <= seconds <= SIGNED_URL_SECONDS_MAX:
        raise ValueError(f"a signed URL lasts from 1 to {SIGNED_URL_SECONDS_MAX} seconds")
    return datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=seconds)
