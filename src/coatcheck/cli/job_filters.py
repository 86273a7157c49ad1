"""Options that filter jobs."""

from __future__ import annotations

from typing import Annotated

import typer

StateOption = Annotated[
    list[str] | None,
    typer.Option(
        "--state",
        help="A state such as queued, processing or failed; or live, or ended. Repeatable.",
    ),
]
LaneOption = Annotated[
    str | None, typer.Option("--lane", help="Only this lane: urgent, standard or bulk.")
]
SurfaceOption = Annotated[
    str | None,
    typer.Option("--surface", help="Only this API: gateway, graphs, batches, llm or speech."),
]
ServiceOption = Annotated[str | None, typer.Option("--service", help="Only jobs of this service.")]
EndpointOption = Annotated[
    str | None,
    typer.Option("--endpoint", help="Only jobs of this endpoint, such as demo.post__echo."),
]
ErrorCodeOption = Annotated[
    str | None, typer.Option("--error-code", help="Only jobs that failed with this error code.")
]
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="The job ID.")]
