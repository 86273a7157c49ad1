"""The secrets that webhooks are signed with, one for each organisation and rotation.

Derived from the pepper that all servers of a deployment share, as the key of receipts is: nothing
that a copy of the database holds can sign, and no server needs a setting more (docs/adr/0018).
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from standardwebhooks import Webhook

_LABEL: Final = b"coatcheck/webhooks/v1\0"
_SECRET_BYTES: Final = 32
_PREFIX: Final = "whsec_"


class WebhookSecrets:
    """Every secret of the deployment that has this pepper."""

    def __init__(self, pepper: str) -> None:
        self._pepper = pepper.encode()
        self._of = lru_cache(maxsize=1_000)(self._derive)

    def text(self, org: str, generation: int) -> str:
        """A secret as receivers configure it: ``whsec_`` and base64."""
        return _PREFIX + base64.b64encode(self._of(org, generation)).decode()

    def signature(
        self, org: str, generations: Sequence[int], message: str, at: datetime, body: bytes
    ) -> str:
        """The header ``webhook-signature``: of each of these generations, the present one first."""
        # The library takes the wall clock's digits for UTC, whatever zone they are of.
        moment, text = at.astimezone(UTC), body.decode()
        return " ".join(
            Webhook(self._of(org, generation)).sign(message, moment, text)
            for generation in generations
        )

    def _derive(self, org: str, generation: int) -> bytes:
        info = _LABEL + f"{generation}\0{org}".encode()
        hkdf = HKDF(hashes.SHA256(), _SECRET_BYTES, salt=None, info=info)
        return hkdf.derive(self._pepper)
