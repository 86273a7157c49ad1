"""Options that several commands share, and how their values are read."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Final

import typer

from coatcheck.domain.limits import KEY_LIFE_SECONDS_MAX, RATE_REQUESTS_MAX, RATE_SECONDS_MAX
from coatcheck.domain.tenants import RateLimit

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


def moment(text: str) -> datetime:
    """``2h`` for two hours ago, or a time such as ``2026-01-31T12:00:00Z``. Without a zone it is
    local time."""
    try:
        return datetime.now(UTC) - timedelta(seconds=seconds(text))
    except typer.BadParameter:
        pass  # not a duration, so it must be a time
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise typer.BadParameter("expected a time such as 2h, 7d or 2026-01-31T12:00:00Z") from None


JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
SinceOption = Annotated[
    datetime | None,
    typer.Option(
        "--since",
        parser=moment,
        metavar="MOMENT",
        help="Created at or after this time: 2h for two hours ago, or 2026-01-31T12:00:00Z.",
    ),
]
UntilOption = Annotated[
    datetime | None,
    typer.Option("--until", parser=moment, metavar="MOMENT", help="Created before this time."),
]
