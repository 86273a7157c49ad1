"""The secrets of one registered target: their values, recipient and id.

Definitions, payloads and rows never contain plain values. The values of a target are sealed and
stored under an id (``core/queries/service_secrets.py``); definitions and payloads refer to the id.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final
from uuid import UUID

import msgspec

Address = tuple[str, str]
"""The recipient of a target's secrets: the kind of service (``http``, ``runpod``), and its URL."""

UPSTREAM: Final = "upstream"
"""The kind of an http upstream."""
_LABEL: Final = "coatcheck/target-secrets/v1"


class TargetSecrets(msgspec.Struct, frozen=True):
    """The values by name, and the address they were given for: they are sent nowhere else.

    For an upstream, the names are those of its headers.
    """

    address: Address
    values: dict[str, str]

    def __repr__(self) -> str:
        return f"<TargetSecrets of {self.address[0]}>"

    def are_for_url(self, url: str) -> bool:
        """Whether an upstream's secrets may be sent to ``url``: its registered URL or below."""
        base = self.address[1].rstrip("/")
        return (
            self.address[0] == UPSTREAM
            and url.startswith(base)
            and url[len(base) :][:1] in ("", "/", "?")
        )


def secrets_id(org: str, endpoint_id: str, address: Address) -> UUID:
    """The id of the secrets that an endpoint sends to an address.

    It stays the same when the service is registered again, so a waiting job uses the values that
    are valid when it runs. Another address has another id: values given for one address are never
    used for another.
    """
    digest = hashlib.sha256(msgspec.json.encode([_LABEL, org, endpoint_id, *address])).digest()
    return UUID(bytes=digest[:16])


def texts_to_mask(values: Mapping[str, str]) -> tuple[str, ...]:
    """The texts to mask where an upstream may have repeated its headers: each value, and the part
    after its scheme."""
    return tuple(
        part
        for value in values.values()
        for part in (value, value.partition(" ")[2].strip())
        if part
    )


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(TargetSecrets).decode


def encode_secrets(secrets: TargetSecrets) -> bytes:
    """Encode for sealing."""
    return _encode(secrets)


def decode_secrets(plain: bytes) -> TargetSecrets:
    return _decode(plain)
