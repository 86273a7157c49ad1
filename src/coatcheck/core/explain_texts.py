"""Moments, spans and reasons in words."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from coatcheck.domain.explanation import Blocker, Eta

_MINUTE = 60
_HOUR = 3_600
_DAY = 86_400


def clock(moment: datetime, now: datetime) -> str:
    """A moment, with its day unless that is today's."""
    moment, now = moment.astimezone(UTC), now.astimezone(UTC)
    form = "%H:%M:%S UTC" if moment.date() == now.date() else "%Y-%m-%d %H:%M:%S UTC"
    return moment.strftime(form)


def seconds_in_words(seconds: float) -> str:
    """A span, as exactly as anybody wants to know."""
    if seconds < 1:
        return "less than a second"
    if seconds < 2 * _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < 2 * _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    if seconds < 2 * _DAY:
        return f"{seconds / _HOUR:.0f} h"
    return f"{seconds / _DAY:.0f} days"


def counted(number: int, one: str, many: str) -> str:
    return f"1 {one}" if number == 1 else f"{number:,} {many}"


def sentence_of(
    blockers: Sequence[Blocker], eta: Eta | None, otherwise: str = "It is about to start."
) -> str:
    """The strongest reason, or else what is given, and how long it may take."""
    reason = blockers[0].message if blockers else otherwise
    if eta is None:
        return reason
    usual, slow = seconds_in_words(eta.end_p50), seconds_in_words(eta.end_p90)
    tail = "" if usual == slow else f"; 90 % finish within {slow}"
    return f"{reason} It should end in about {usual}{tail}."
