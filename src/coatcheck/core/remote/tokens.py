"""What a spawn is known by: its token, to the remote, and its callback, to us. Both are made of the
same facts each time, so that nothing is lost with the process that made them."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

CALLBACKS_PATH: Final = "/v1/remote-callbacks/"
_SIGNATURE_BYTES: Final = 16
_CALLBACK_CHARACTERS_MAX: Final = 1_024


class Spawned(NamedTuple):
    """One spawn of one job."""

    org: str
    job: UUID
    spawn: int


class Tokens:
    """Makes tokens and callbacks for one database, and reads callbacks back."""

    def __init__(self, deployment: UUID, key: bytes) -> None:
        self._deployment = deployment
        self._key = key

    def token(self, spawned: Spawned) -> str:
        """The same for the same spawn, and like no other's."""
        facts = msgspec.json.encode([self._deployment.hex, *_facts(spawned)])
        return hashlib.sha256(facts).hexdigest()

    def callback_url(self, public_url: str, spawned: Spawned) -> str | None:
        """Where a remote says that it is done; None if it cannot reach us."""
        if not public_url:
            return None
        facts = msgspec.json.encode(_facts(spawned))
        callback = base64.urlsafe_b64encode(self._signature(facts) + facts).rstrip(b"=").decode()
        return public_url.rstrip("/") + CALLBACKS_PATH + callback

    def read_callback(self, callback: str) -> Spawned | None:
        """The spawn that a callback is about; None if it was not signed here."""
        if len(callback) > _CALLBACK_CHARACTERS_MAX or not callback.isascii():
            return None
        try:
            signed = base64.b64decode(callback + "=" * (-len(callback) % 4), b"-_", validate=True)
        except (binascii.Error, ValueError):
            return None
        signature, facts = signed[:_SIGNATURE_BYTES], signed[_SIGNATURE_BYTES:]
        if not hmac.compare_digest(signature, self._signature(facts)):
            return None
        org, job, spawn = msgspec.json.decode(facts, type=tuple[str, UUID, int])
        return Spawned(org, job, spawn)

    def _signature(self, facts: bytes) -> bytes:
        return hmac.digest(self._key, facts, "sha256")[:_SIGNATURE_BYTES]


def _facts(spawned: Spawned) -> tuple[str, str, int]:
    return spawned.org, str(spawned.job), spawned.spawn
