"""Options that several commands have, with one meaning."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from coatcheck.cli.moments import moment

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
SinceOption = Annotated[
    datetime | None,
    typer.Option(
        "--since",
        parser=moment,
        metavar="MOMENT",
        help="Made since then: 2h ago, or a moment such as 2026-01-31T12:00:00Z.",
    ),
]
UntilOption = Annotated[
    datetime | None,
    typer.Option("--until", parser=moment, metavar="MOMENT", help="Made before then."),
]
