"""What can be made to go wrong with a fake's next answer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Garbage:
    """200, and a body that is not what the API has."""

    body: bytes = b'{"surprise": [1, 2'


@dataclass(frozen=True)
class Hang:
    """The request is taken, and never answered."""


@dataclass(frozen=True)
class Cut:
    """The connection is closed instead of an answer."""


@dataclass(frozen=True)
class Status:
    """An error's status, whose text repeats the credentials that came with the request."""

    code: int
    retry_after: str | None = None


Fault = Garbage | Hang | Cut | Status
