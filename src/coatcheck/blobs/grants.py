"""Signed URL tokens of the control plane: one method on one blob, until an expiry time.

The token carries its own permission, signed with a key derived from the pepper that all servers of
a deployment share. So any server can check it without the database, and none keeps a list. Whoever
has the URL may use it; that is its purpose.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from datetime import datetime
from typing import Final, Literal

import msgspec
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from coatcheck.domain.errors import NotFound, SignedUrlExpired

_LABEL: Final = b"coatcheck/blobs/hmac-sha256/v1"
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
        hkdf = HKDF(hashes.SHA256(), _KEY_BYTES, salt=None, info=_LABEL)
        self._key = hkdf.derive(pepper.encode())

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
