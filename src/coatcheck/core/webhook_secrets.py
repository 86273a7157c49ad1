"""The secrets that webhooks are signed with: one for each organisation, one for each endpoint that
it has registered, and another after each rotation.

Derived from the pepper that all servers of a deployment share, as the key of receipts is: nothing
that a copy of the database holds can sign, and no server needs a setting more (docs/adr/0018).
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final
from uuid import UUID

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from standardwebhooks import Webhook

from coatcheck.core.queries.webhooks import Claimed
from coatcheck.domain.webhooks import message_id

_LABEL: Final = b"coatcheck/webhooks/v1\0"
_ENDPOINT_LABEL: Final = b"coatcheck/webhooks/endpoint/v1\0"
_SECRET_BYTES: Final = 32
_PREFIX: Final = "whsec_"


class WebhookSecrets:
    """Every secret of the deployment that has this pepper."""

    def __init__(self, pepper: str) -> None:
        self._pepper = pepper.encode()
        self._of = lru_cache(maxsize=1_000)(self._derive)

    def text(self, org: str, generation: int, endpoint: UUID | None = None) -> str:
        """A secret as receivers configure it, ``whsec_`` and base64: the organisation's, or that of
        one of its endpoints."""
        return _PREFIX + base64.b64encode(self._of(org, generation, endpoint)).decode()

    def headers(self, claimed: Claimed, body: bytes, at: datetime) -> dict[str, str]:
        """What is sent with a message: its type, its id, when it was sent, and its signatures, that
        of the present secret first."""
        notice = claimed.notice
        endpoint = notice.target if claimed.to_endpoint else None
        message = message_id(notice.id)
        # The library takes the wall clock's digits for UTC, whatever zone they are of.
        moment, text = at.astimezone(UTC), body.decode()
        signatures = [
            Webhook(self._of(notice.org, generation, endpoint)).sign(message, moment, text)
            for generation in claimed.generations
        ]
        return {
            "content-type": "application/json",
            "webhook-id": message,
            "webhook-timestamp": str(int(moment.timestamp())),
            "webhook-signature": " ".join(signatures),
        }

    def _derive(self, org: str, generation: int, endpoint: UUID | None) -> bytes:
        if endpoint is None:
            info = _LABEL + f"{generation}\0{org}".encode()
        else:
            info = _ENDPOINT_LABEL + f"{generation}\0{endpoint.hex}\0{org}".encode()
        hkdf = HKDF(hashes.SHA256(), _SECRET_BYTES, salt=None, info=info)
        return hkdf.derive(self._pepper)
