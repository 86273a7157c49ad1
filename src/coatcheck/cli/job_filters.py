"""The options that choose among an organisation's jobs."""

from __future__ import annotations

from typing import Annotated

import typer

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
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="The job's id.")]
