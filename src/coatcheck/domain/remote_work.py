"""The payload of a job whose work a remote does: the destination, the body, and a note."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

FIRST_POLL_SECONDS: Final = 0.2
POLL_SECONDS_MAX: Final = 30.0
_STEP: Final = 0.25
"""A fraction of its age, or of the time it is late."""
_SPREADS: Final = 2.0
"""How many times its usual spread work may be early or late."""
_CLOSE: Final = 0.05
"""While it may be done, the interval is this part of the usual time, or a part of its spread."""
_QUICK_POLLS: Final = 2

FAULT_SECONDS_MIN: Final = 1.0
"""The pause after an unusable answer; doubled for each in a row."""


def seconds_to_next_poll(
    age: float, polls: int, usual: float | None, spread: float | None
) -> float:
    """The pause after the ``polls``-th poll of work that started ``age`` seconds ago."""
    grown = max(FIRST_POLL_SECONDS, age * _STEP)
    if usual is None or spread is None or polls < _QUICK_POLLS:
        return min(POLL_SECONDS_MAX, grown)
    close = max(FIRST_POLL_SECONDS, usual * _CLOSE, spread * _STEP)
    earliest = max(0.0, usual - _SPREADS * spread) * (1.0 - _CLOSE)
    if age < earliest:
        return min(POLL_SECONDS_MAX, max(FIRST_POLL_SECONDS, earliest - age))
    late = max(0.0, age - usual - _SPREADS * spread)
    return min(POLL_SECONDS_MAX, max(close, late * _STEP))


def seconds_after_faults(faults: int, asked_for: float | None = None) -> float:
    """The pause after so many unusable answers in a row, or a longer one if requested."""
    pause = min(POLL_SECONDS_MAX, FAULT_SECONDS_MIN * 2.0 ** min(faults - 1, 10))
    return pause if asked_for is None else max(pause, asked_for)


class OperatorRemote(msgspec.Struct, frozen=True):
    """The operator's own remote, from the settings: a definition, and the values of its secrets by
    name. It is never stored: never log it."""

    target: dict[str, Any]
    secrets: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"<OperatorRemote {self.shown}>"

    @property
    def shown(self) -> str:
        """A description without secrets."""
        return _shown(self.target)


class Destination(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where work goes: a target that a tenant defined, or one of the operator's.

    ``target`` is a definition (``remotes/definitions.py``). ``secrets_id`` says where its secrets
    are sealed, if it has any (``service_definition.py``): no value is ever in here. ``note`` is
    for whoever stores the result.
    """

    target: dict[str, Any] | None = None
    secrets_id: str = ""
    operator: str = ""
    """The name of the operator's target; its definition is looked up at each call."""
    note: dict[str, Any] = {}
    run_seconds: float | None = None
    """How long the work may take in total; None: as long as the job's attempt may."""

    def __repr__(self) -> str:
        return f"<Destination {self.shown}>"

    @property
    def shown(self) -> str:
        """A description without secrets."""
        return self.operator or _shown(self.target or {})


def _shown(target: Mapping[str, Any]) -> str:
    host = urlsplit(str(target.get("url", ""))).hostname
    return " ".join(filter(None, [target.get("adapter"), host]))


class RemoteWork(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The payload of a job that a remote does. ``body`` is the JSON that the remote gets."""

    to: Destination
    body: msgspec.Raw

    def __repr__(self) -> str:
        return f"<RemoteWork {self.to!r}>"


class _WorkPayload(msgspec.Struct, frozen=True):
    work: RemoteWork


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(_WorkPayload).decode
_decode_destination: Final = msgspec.json.Decoder(Destination).decode


def encode_work(to: Destination, body: bytes) -> bytes:
    """Encode the payload of such a job; ``body`` is JSON."""
    return _encode(_WorkPayload(RemoteWork(to, msgspec.Raw(body))))


def decode_work(payload: bytes) -> RemoteWork:
    """Decode the work in a payload."""
    return _decode(payload).work


def encode_destination(to: Destination) -> bytes:
    return _encode(to)


def decode_destination(destination: bytes) -> Destination:
    return _decode_destination(destination)
