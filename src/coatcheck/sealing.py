"""Authenticated encryption (AES-256-GCM, named keys) for data stored where others may read it.

A sealed text names the key it was sealed with and is bound to the place it was sealed for. If it is
changed, cut, or moved to another place, it does not open. Keys are rotated by listing a new one
first: the first key seals, and every key in the list opens.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_CHARACTERS_MIN: Final = 32
"""Minimum length of the text a key is derived from: 32 hexadecimal digits have 128 bits."""
_VERSION: Final = "v1"
_KEY_BYTES: Final = 32
_KEY_ID_BYTES: Final = 8
_BLOCK_BYTES: Final = hashlib.sha256().digest_size
_NONCE_BYTES: Final = 12
_SEALED: Final = re.compile(r"v1\.([0-9a-f]{16})\.([A-Za-z0-9_-]+)")


class SealError(Exception):
    """A text that cannot be opened."""


class UnknownKey(SealError):
    """It was sealed with a key that is not in the list: ``key_id``."""

    def __init__(self, key_id: str) -> None:
        super().__init__(f"it was sealed with the key {key_id}, which is not configured here")
        self.key_id = key_id


class SealBroken(SealError):
    """It was changed or cut, or sealed for another place."""


class Sealer:
    """Seals with the first of ``keys`` and opens with any of them.

    ``label`` says what the keys are for: each label derives different keys from the same text.
    Without keys it opens nothing, and ``seal`` must not be called.
    """

    def __init__(self, keys: Sequence[str], label: str) -> None:
        self._keys = {
            derived(key, f"{label}/id", _KEY_ID_BYTES).hex(): derived(key, label, _KEY_BYTES)
            for key in keys
        }
        self.key_ids: tuple[str, ...] = tuple(self._keys)
        """The first is the one that seals."""

    @cached_property
    def _ciphers(self) -> dict[str, AESGCM]:
        # 8 MB, which a process that neither seals nor opens does without.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return {key_id: AESGCM(key) for key_id, key in self._keys.items()}

    def seal(self, place: Sequence[str], plain: bytes) -> str:
        """Seal ``plain`` for ``place``: printable, a third longer, and different each time."""
        key_id = self.key_ids[0]
        nonce = os.urandom(_NONCE_BYTES)
        sealed = self._ciphers[key_id].encrypt(nonce, plain, _bound_to(place))
        encoded = base64.urlsafe_b64encode(nonce + sealed).rstrip(b"=").decode()
        return f"{_VERSION}.{key_id}.{encoded}"

    def open(self, place: Sequence[str], sealed: str) -> bytes:
        """Open what was sealed for ``place``. Raises UnknownKey or SealBroken."""
        found = _SEALED.fullmatch(sealed)
        if found is None:
            raise SealBroken("it is not a sealed text")
        key_id, encoded = found.groups()
        if key_id not in self._keys:
            raise UnknownKey(key_id)
        from cryptography.exceptions import InvalidTag

        cipher = self._ciphers[key_id]
        try:
            raw = base64.b64decode(encoded + "=" * (-len(encoded) % 4), b"-_", validate=True)
            return cipher.decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], _bound_to(place))
        except (ValueError, InvalidTag):
            raise SealBroken("it was changed, or sealed for another place") from None


def derived(key: str, label: str, length: int) -> bytes:
    """``length`` bytes, at most 32, derived from ``key`` for the purpose ``label``.

    It is HKDF (RFC 5869) with SHA-256 and no salt, and one block of output.
    """
    if not 1 <= length <= _BLOCK_BYTES:
        raise ValueError(f"a derived key has from 1 to {_BLOCK_BYTES} bytes")
    extracted = hmac.digest(bytes(_BLOCK_BYTES), key.encode(), "sha256")
    return hmac.digest(extracted, label.encode() + b"\x01", "sha256")[:length]


def _bound_to(place: Sequence[str]) -> bytes:
    # JSON, so that no two places have the same encoding.
    return msgspec.json.encode([_VERSION, *place])
