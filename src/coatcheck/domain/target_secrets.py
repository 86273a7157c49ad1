"""The secrets of one registered target: what they are, whom they are for, what they are called.

Values are never in a definition, a payload or a row as they are. The set of a target's values is
sealed and stored under an id (``store/service_secrets.py``); definitions and payloads name the id.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final
from uuid import UUID

import msgspec

Address = tuple[str, str]
"""Who is sent a target's secrets: the kind of service (``http``, ``runpod``), and its URL."""

UPSTREAM: Final = "upstream"
"""The kind of an http upstream."""
_LABEL: Final = "coatcheck/target-secrets/v1"


class TargetSecrets(msgspec.Struct, frozen=True):
    """The values by name, and the address that they were given for: they are sent nowhere else.

    The names of an upstream's are those of its headers.
    """

    address: Address
    values: dict[str, str]

    def __repr__(self) -> str:
        return f"<TargetSecrets of {self.address[0]}>"

    def are_for_url(self, url: str) -> bool:
        """Whether an upstream's may be sent to ``url``: the registered URL, or what is below it."""
        base = self.address[1].rstrip("/")
        return (
            self.address[0] == UPSTREAM
            and url.startswith(base)
            and url[len(base) :][:1] in ("", "/", "?")
        )


def secrets_id(org: str, endpoint_id: str, address: Address) -> UUID:
    """The id of the secrets that an endpoint sends to an address.

    It is the same however often the service is registered, so a job that waits is sent with the
    values that are valid when it runs. Another address has another id: values that were given for
    one address are never found for another.
    """
    digest = hashlib.sha256(msgspec.json.encode([_LABEL, org, endpoint_id, *address])).digest()
    return UUID(bytes=digest[:16])


def texts_to_mask(values: Mapping[str, str]) -> tuple[str, ...]:
    """What must not be shown where an upstream may have repeated its headers: each value, and what
    follows its scheme."""
    return tuple(
        part
        for value in values.values()
        for part in (value, value.partition(" ")[2].strip())
        if part
    )


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(TargetSecrets).decode


def encode_secrets(secrets: TargetSecrets) -> bytes:
    """What is sealed."""
    return _encode(secrets)


def decode_secrets(plain: bytes) -> TargetSecrets:
    return _decode(plain)
