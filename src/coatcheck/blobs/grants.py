"""What a URL of the control plane allows: one method on one blob, until some time.

The URL itself says so, signed with a key that is derived from the pepper that all servers of a
deployment share. So any of them can check it, without a look at the database, and none keeps a
list. Whoever has the URL may use it; that is what it is for.
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
    """``expires`` is a Unix time. ``bytes_max`` bounds what is put; the rest is for a GET."""

    method: Literal["GET", "PUT"]
    key: str
    expires: int
    file_name: str | None = None
    media_type: str | None = None
    bytes_max: int | None = None


class Grants:
    """Signs grants, and tells those that it signed from all others."""

    def __init__(self, pepper: str) -> None:
        hkdf = HKDF(hashes.SHA256(), _KEY_BYTES, salt=None, info=_LABEL)
        self._key = hkdf.derive(pepper.encode())

    def token(self, grant: Grant) -> str:
        """A grant as one segment of a path."""
        said = msgspec.msgpack.encode(grant)
        return base64.urlsafe_b64encode(self._mac(said) + said).rstrip(b"=").decode()

    def read(self, token: str, method: Literal["GET", "PUT"], now: datetime) -> Grant:
        """The grant in a token, for this method.

        Raises SignedUrlExpired if its time is up, and NotFound if it is anything but a grant that
        was signed here: what is wrong with it, is not said.
        """
        raw = _decoded(token)
        mac, said = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(said)):
            raise NotFound
        grant = msgspec.msgpack.decode(said, type=Grant)
        if grant.method != method:
            raise NotFound
        if grant.expires <= now.timestamp():
            raise SignedUrlExpired("This URL has expired; ask for another where it came from.")
        return grant

    def _mac(self, said: bytes) -> bytes:
        return hmac.digest(self._key, said, "sha256")


def _decoded(token: str) -> bytes:
    """The bytes of a token that is spelt as we would spell it; else none."""
    if len(token) > _TOKEN_CHARACTERS_MAX or not token.isascii():
        return b""
    padded = token.encode() + b"=" * (-len(token) % 4)
    try:
        raw = base64.b64decode(padded, altchars=b"-_", validate=True)
    except binascii.Error:
        return b""
    spelt = base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
    return raw if spelt == token else b""
