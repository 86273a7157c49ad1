"""Events, as options spell them."""

from __future__ import annotations

from typing import Annotated

import typer

EventsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--events",
        help="Of what it is told, such as job.failed; with commas between, or given again. By "
        "default of every end.",
    ),
]


def event_names(texts: list[str] | None) -> list[str] | None:
    """The names; None if there are none."""
    return [name for text in texts or [] for name in text.replace(",", " ").split()] or None
