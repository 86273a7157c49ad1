"""The options that choose among an organisation's jobs."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from coatcheck.cli.moments import moment

StateOption = Annotated[
    list[str] | None,
    typer.Option(
        "--state",
        help="Such as queued, processing, failed; live or ended. May be given again.",
    ),
]
LaneOption = Annotated[str | None, typer.Option("--lane", help="urgent, standard or bulk.")]
SurfaceOption = Annotated[
    str | None, typer.Option("--surface", help="gateway, graphs, batches, llm or speech.")
]
ServiceOption = Annotated[str | None, typer.Option("--service", help="Of this service.")]
EndpointOption = Annotated[
    str | None, typer.Option("--endpoint", help="Of this endpoint, such as demo.post__echo.")
]
ErrorCodeOption = Annotated[
    str | None, typer.Option("--error-code", help="That failed with this code.")
]
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
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="The job's id.")]
