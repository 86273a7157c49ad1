"""Parses times given as options."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import typer

from coatcheck.cli import quantities


def moment(text: str) -> datetime:
    """``2h`` for two hours ago, or a time such as ``2026-01-31T12:00:00Z``. Without a zone it is
    local time."""
    try:
        return datetime.now(UTC) - timedelta(seconds=quantities.seconds(text))
    except typer.BadParameter:
        pass  # not a duration, so it must be a time
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise typer.BadParameter("expected a time such as 2h, 7d or 2026-01-31T12:00:00Z") from None
