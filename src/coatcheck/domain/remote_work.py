"""Work for a remote, as the payload of its job: what to do, where, and what its keeper wants."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit

import msgspec


class Destination(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where work goes: a target that a tenant defined, with its secrets, or one of the operator's.

    ``target`` is a definition (``remotes/definitions.py``). ``secrets`` are values by name: never
    log it. ``note`` is what the endpoint's keeper wants to know when the result is there.
    """

    target: dict[str, Any] | None = None
    secrets: dict[str, str] = {}
    operator: str = ""
    """The name of the operator's target; its definition is looked up when it is asked."""
    note: dict[str, Any] = {}
    run_seconds: float | None = None
    """How long the work may take in all; None: as long as the job's attempt may."""

    def __repr__(self) -> str:
        return f"<Destination {self.shown}>"

    @property
    def shown(self) -> str:
        """A word for it that holds no secret."""
        target = self.target or {}
        host = urlsplit(str(target.get("url", ""))).hostname
        return self.operator or " ".join(filter(None, [target.get("adapter"), host]))


class RemoteWork(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The payload of a job that is done elsewhere. ``body`` is the JSON that the remote gets."""

    to: Destination
    body: msgspec.Raw

    def __repr__(self) -> str:
        return f"<RemoteWork {self.to!r}>"


class _Payload(msgspec.Struct, frozen=True):
    work: RemoteWork


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(_Payload).decode
_decode_destination: Final = msgspec.json.Decoder(Destination).decode


def encode_work(to: Destination, body: bytes) -> bytes:
    """The payload of such a job; ``body`` is JSON."""
    return _encode(_Payload(RemoteWork(to, msgspec.Raw(body))))


def decode_work(payload: bytes) -> RemoteWork:
    """The work that a payload holds."""
    return _decode(payload).work


def encode_destination(to: Destination) -> bytes:
    return _encode(to)


def decode_destination(destination: bytes) -> Destination:
    return _decode_destination(destination)
