"""Options that several commands share."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from coatcheck.cli.timestamps import moment

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
