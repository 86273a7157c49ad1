"""Parses rates and durations given as options."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import typer

from coatcheck.domain.identity import RateLimit
from coatcheck.domain.limits import (
    KEY_LIFE_SECONDS_MAX,
    RATE_REQUESTS_MAX,
    RATE_SECONDS_MAX,
)

if TYPE_CHECKING:
    from coatcheck.client import KeyRate

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_SPAN: Final = re.compile(r"([0-9]{1,10})([smhd])")
_RATE: Final = re.compile(r"([0-9]{1,10})/([0-9]{1,10})")


def seconds(text: str) -> int:
    """``30d``, ``12h``, ``90m`` or ``45s`` in seconds."""
    found = _SPAN.fullmatch(text)
    value = int(found[1]) * _UNITS[found[2]] if found else 0
    if not 1 <= value <= KEY_LIFE_SECONDS_MAX:
        raise typer.BadParameter("expected a number and a unit, such as 30d, 12h, 90m or 45s")
    return value


def rate(text: str) -> RateLimit:
    """``100/60``: a hundred requests per minute."""
    found = _RATE.fullmatch(text)
    if found is not None:
        requests, window = int(found[1]), int(found[2])
        if 1 <= requests <= RATE_REQUESTS_MAX and 1 <= window <= RATE_SECONDS_MAX:
            return RateLimit(requests, window)
    raise typer.BadParameter("expected requests/seconds, such as 100/60")


def shown(limit: RateLimit | KeyRate | None) -> str:
    return "-" if limit is None else f"{limit.requests}/{limit.seconds}"
