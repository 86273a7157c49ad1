"""Moments, as options spell them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import typer

from coatcheck.cli import quantities


def moment(text: str) -> datetime:
    """``2h`` for two hours ago, or a moment such as ``2026-01-31T12:00:00Z``; without a zone, of
    this machine's."""
    try:
        return datetime.now(UTC) - timedelta(seconds=quantities.seconds(text))
    except typer.BadParameter:
        pass  # no span, so it has to be a moment
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise typer.BadParameter("such as 2h, 7d, or 2026-01-31T12:00:00Z") from None
