"""Seals what a browser keeps for us, so that it can neither be read nor changed there.

The key is derived from the pepper that all servers of a deployment share: each of them opens what
another has sealed, and none needs a setting more.
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
    """Seals and opens; and makes the tokens of forms."""

    def __init__(self, pepper: str) -> None:
        self._sealer = Sealer([pepper], _SEALING_LABEL)
        self._token_key = derived(pepper, _TOKEN_LABEL, _TOKEN_KEY_BYTES)

    def close(self, purpose: str, plain: bytes) -> str:
        """``plain``, sealed; only ``open`` for the same ``purpose`` gives it back."""
        return self._sealer.seal([purpose], plain)

    def open(self, purpose: str, sealed: str) -> bytes | None:
        """What was sealed; None if we did not, or not for this."""
        try:
            return self._sealer.open([purpose], sealed)
        except SealError:
            return None

    def token(self, of: bytes) -> str:
        """What a form carries to show that it is our page's, for the session named ``of``."""
        digest = hmac.digest(self._token_key, of, hashlib.sha256)
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()

    def is_token(self, of: bytes, given: str | None) -> bool:
        return given is not None and hmac.compare_digest(
            self.token(of).encode(), given.encode("utf-8", "replace")
        )
