"""Authenticated encryption of cookies, and CSRF tokens.

The keys derive from the pepper that all servers of a deployment share. So every server opens what
another has sealed, and no further setting is needed.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Final

from coatcheck.sealing import Sealer, SealError, derived

_SEALING_LABEL: Final = "coatcheck/dashboard/cookies/aes-256-gcm/v1"
_TOKEN_LABEL: Final = "coatcheck/dashboard/forms/hmac-sha256/v1"  # noqa: S105 - no secret
_TOKEN_KEY_BYTES: Final = 32


class Seal:
    """Encrypts and decrypts cookie values, and makes CSRF tokens."""

    def __init__(self, pepper: str) -> None:
        self._sealer = Sealer([pepper], _SEALING_LABEL)
        self._token_key = derived(pepper, _TOKEN_LABEL, _TOKEN_KEY_BYTES)

    def close(self, purpose: str, plain: bytes) -> str:
        """Encrypt ``plain``; only ``open`` with the same ``purpose`` decrypts it."""
        return self._sealer.seal([purpose], plain)

    def open(self, purpose: str, sealed: str) -> bytes | None:
        """Decrypt a value; None if it is forged or was sealed for another purpose."""
        try:
            return self._sealer.open([purpose], sealed)
        except SealError:
            return None

    def token(self, of: bytes) -> str:
        """The CSRF token of forms in the session that ``of`` identifies."""
        digest = hmac.digest(self._token_key, of, hashlib.sha256)
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()

    def is_token(self, of: bytes, given: str | None) -> bool:
        return given is not None and hmac.compare_digest(
            self.token(of).encode(), given.encode("utf-8", "replace")
        )
