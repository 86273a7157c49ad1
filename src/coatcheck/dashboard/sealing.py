"""Seals what a browser keeps for us, so that it can neither be read nor changed there.

The key is derived from the pepper that all servers of a deployment share: each of them opens what
another has sealed, and none needs a setting more.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

_SEALING_LABEL: Final = b"coatcheck/dashboard/cookies/aes-256-gcm/v1"
_TOKEN_LABEL: Final = b"coatcheck/dashboard/forms/hmac-sha256/v1"
_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12


class Seal:
    """Seals and opens; and makes the tokens of forms."""

    def __init__(self, pepper: str) -> None:
        self._cipher = AESGCM(_derive(pepper, _SEALING_LABEL))
        self._token_key = _derive(pepper, _TOKEN_LABEL)

    def close(self, purpose: str, plain: bytes) -> str:
        """``plain``, sealed; only ``open`` for the same ``purpose`` gives it back."""
        nonce = os.urandom(_NONCE_BYTES)
        sealed = self._cipher.encrypt(nonce, plain, purpose.encode())
        return base64.urlsafe_b64encode(nonce + sealed).rstrip(b"=").decode()

    def open(self, purpose: str, sealed: str) -> bytes | None:
        """What was sealed; None if we did not, or not for this."""
        try:
            raw = base64.b64decode(sealed + "=" * (-len(sealed) % 4), altchars=b"-_", validate=True)
            return self._cipher.decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], purpose.encode())
        except (ValueError, binascii.Error, InvalidTag):
            return None

    def token(self, of: bytes) -> str:
        """What a form carries to show that it is our page's, for the session named ``of``."""
        digest = hmac.digest(self._token_key, of, hashlib.sha256)
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()

    def is_token(self, of: bytes, given: str | None) -> bool:
        return given is not None and hmac.compare_digest(
            self.token(of).encode(), given.encode("utf-8", "replace")
        )


def _derive(pepper: str, label: bytes) -> bytes:
    return HKDF(hashes.SHA256(), _KEY_BYTES, salt=None, info=label).derive(pepper.encode())
