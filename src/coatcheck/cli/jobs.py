"""``coatcheck jobs``: lists jobs, once or as a live table."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Final

import typer
from rich.cells import cell_len
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from coatcheck.cli.common_options import JsonOption, SinceOption, UntilOption
from coatcheck.cli.console import err, out, plain, until_nobody_reads
from coatcheck.cli.errors import Misconfigured
from coatcheck.cli.job_filters import (
    EndpointOption,
    ErrorCodeOption,
    LaneOption,
    ServiceOption,
    StateOption,
    SurfaceOption,
)
from coatcheck.cli.job_show import STATE_STYLES, age, brief, line, what
from coatcheck.cli.server_address import Server
from coatcheck.cli.server_options import on_server
from coatcheck.client import Client, JobDetails

_PAGE_JOBS: Final = 200
_LOOK_SECONDS: Final = 2.0
_HEADING_LINES: Final = 3
_GAP: Final = 2
_ENDPOINT_CHARACTERS_MAX: Final = 40


@on_server
def jobs(
    at: Server,
    state: StateOption = None,
    lane: LaneOption = None,
    surface: SurfaceOption = None,
    service: ServiceOption = None,
    endpoint: EndpointOption = None,
    owner: Annotated[str | None, typer.Option(help="Only jobs of this user.")] = None,
    error_code: ErrorCodeOption = None,
    query: Annotated[
        str | None,
        typer.Option("--query", "-q", help="A job ID, idempotency key or request ID."),
    ] = None,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of jobs.")] = 20,
    cursor: Annotated[str | None, typer.Option(help="Cursor from the previous page.")] = None,
    watching: Annotated[
        bool, typer.Option("--watch", help="Refresh every two seconds until Ctrl-C.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List jobs, newest first.

    With --json, one JSON object per line.
    """
    if watching and as_json:
        raise Misconfigured("--watch and --json cannot be combined")
    chosen = _Chosen(
        {
            "state": state,
            "lane": lane,
            "surface": surface,
            "service": service,
            "endpoint": endpoint,
            "owner": owner if owner is None or ":" in owner else f"user:{owner}",
            "error_code": error_code,
            "q": query,
            "created_after": since,
            "created_before": until,
        }
    )
    with at.client() as client:
        if watching and out.is_terminal:
            _watch(client, chosen, limit)
            return
        found, after = chosen.some(client, limit, cursor)
    with until_nobody_reads():
        if as_json:
            for job in found:
                typer.echo(json.dumps(job.raw))
        elif out.is_terminal and not found:
            out.print(f"No jobs match in the organisation {at.org}.", style="dim", markup=False)
        elif out.is_terminal:
            out.print(table(found, out.width), soft_wrap=False)
        else:
            for job in found:
                typer.echo(line(job))
    if after is not None:
        err.print(f"More jobs: --cursor {after}", style="dim", markup=False)


class _Chosen:
    """The jobs that match the filter options."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options

    def some(
        self, client: Client, limit: int, cursor: str | None = None
    ) -> tuple[list[JobDetails], str | None]:
        """The newest of them, and the cursor of the next page."""
        found: list[JobDetails] = []
        while True:
            wanted = min(limit - len(found), _PAGE_JOBS)
            page = client.jobs.list(**self._options, cursor=cursor, limit=wanted)
            found += page.items
            cursor = page.next
            if cursor is None or len(found) >= limit:
                return found, cursor


def _watch(client: Client, chosen: _Chosen, limit: int) -> None:
    """Refresh the list until Ctrl-C."""
    try:
        with Live(console=out, auto_refresh=False, screen=True) as live:
            while True:
                room = max(1, min(limit, out.size.height - _HEADING_LINES))
                found, _ = chosen.some(client, room)
                now = f"{datetime.now().astimezone():%H:%M:%S}  Ctrl-C to quit"
                live.update(Group(table(found, out.width), Text(now, style="dim")), refresh=True)
                time.sleep(_LOOK_SECONDS)
    except KeyboardInterrupt:
        return  # the normal way to quit


def table(found: Sequence[JobDetails], width: int) -> Table:
    """Jobs as a table of the given width. The last column is cut to fit."""
    shown = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="dim")
    for heading in ("id", "state", "lane"):
        shown.add_column(heading, no_wrap=True)
    shown.add_column("age", no_wrap=True, justify="right")
    for heading in ("endpoint", ""):
        shown.add_column(heading, no_wrap=True)
    rows = [
        [job.id, job.state, job.lane, age(job), plain(what(job)), plain(brief(job))]
        for job in found
    ]
    widths = [max((cell_len(row[at]) for row in rows), default=0) for at in range(5)]
    widths[4] = min(widths[4], _ENDPOINT_CHARACTERS_MAX)
    room = width - sum(max(one, 5) for one in widths) - _GAP * len(widths) - 1
    for job, row in zip(found, rows, strict=True):
        cells = [Text(text) for text in row]
        cells[1].stylize(STATE_STYLES.get(job.state, ""))
        cells[4].truncate(widths[4], overflow="ellipsis")
        cells[5].stylize("dim")
        cells[5].truncate(max(0, room), overflow="ellipsis")
        shown.add_row(*cells)
    return shown
