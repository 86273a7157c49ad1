"""Parses names of events given as options."""

from __future__ import annotations

from typing import Annotated

import typer

EventsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--events",
        help="Events to send, such as job.failed. Comma-separated or repeated. Default: "
        "the end of every job and batch.",
    ),
]


def event_names(texts: list[str] | None) -> list[str] | None:
    """The names; None if there are none."""
    return [name for text in texts or [] for name in text.replace(",", " ").split()] or None
