"""``coatcheck jobs``: lists jobs, once or as a live table."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Final

import typer
from rich.cells import cell_len
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from coatcheck.cli import batch
from coatcheck.cli.command_errors import Misconfigured
from coatcheck.cli.console import err, out, plain, until_nobody_reads
from coatcheck.cli.entry import EXIT_INTERRUPTED
from coatcheck.cli.job_display import (
    STATE_STYLES,
    age,
    brief,
    ended,
    json_line,
    line,
    log_line,
    require_completed,
    show,
    span,
    what,
)
from coatcheck.cli.options import JsonOption, SinceOption, UntilOption
from coatcheck.cli.server_address import ServerConfig, on_server
from coatcheck.client import (
    Batch,
    Client,
    JobBlocker,
    JobDetails,
    JobExplanation,
    JobLogEntry,
    NotFoundError,
    TimelineEntry,
)
from coatcheck.encoding import encode

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
    str | None, typer.Option("--surface", help="Only jobs of this product, such as gateway or llm.")
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


_WAITING: Final = frozenset({"staged", "queued", "retrying"})


@on_server
def explain(
    at: ServerConfig,
    job_id: JobArgument,
    with_timeline: Annotated[
        bool, typer.Option("--timeline", help="Also show what has happened to the job.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Explain why a job waits, its queue position, and when it should start and end."""
    with at.client() as client:
        found = client.jobs.explain(job_id)
        past = client.jobs.timeline(job_id) if with_timeline else ()
    if as_json:
        document = {"explanation": found, "timeline": past} if with_timeline else found
        typer.echo(encode(document))
        return
    for text in lines(found):
        out.print(text, markup=False)
    for entry in past:
        out.print(timeline_line(entry), style="dim", markup=False)


def lines(found: JobExplanation) -> list[str]:
    """The explanation as text: summary, blockers, queue position and estimates."""
    shown = [plain(found.summary)]
    shown += [f"  {text}" for each in found.blockers if (text := _blocker(each, found.summary))]
    if found.position is not None:
        shown.append(f"  queue position: {found.position:,}")
    eta = found.eta
    if eta is not None:
        for name, p50, p90 in (
            ("starts", eta.start_p50 if found.state in _WAITING else None, eta.start_p90),
            ("ends", eta.end_p50, eta.end_p90),
        ):
            if p50 is not None:
                about, late = span(p50), span(p50 if p90 is None else p90)
                most = "" if late == about else f" (90 % within {late})"
                shown.append(f"  {name} in about {about}{most}")
    return shown


def timeline_line(entry: TimelineEntry) -> str:
    """One entry of the timeline, on one line."""
    parts = [f"{entry.at.astimezone():%m-%d %H:%M:%S}", entry.kind]
    if entry.attempt:
        parts.append(f"attempt {entry.attempt}")
    if entry.code or entry.message:
        parts.append(": ".join(filter(None, (entry.code, entry.message))))
    return plain("  ".join(parts))


def _blocker(blocker: JobBlocker, summary: str) -> str:
    """What blocks the job, without what the summary already says."""
    parts = []
    if blocker.message not in summary:
        parts.append(blocker.message)
        if blocker.until is not None:
            parts.append(f"until {blocker.until.astimezone():%H:%M:%S}")
    if blocker.holders:
        parts.append(f"held by {', '.join(blocker.holders)}")
    return plain("  ".join(parts))


@on_server
def logs(
    at: ServerConfig,
    job_id: JobArgument,
    following: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow the log until the job ends.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show a job's log, its alerts and its failed attempts."""
    try:
        with at.client() as client, until_nobody_reads():
            if not following:
                for entry in client.jobs.log(job_id):
                    _show(entry, as_json)
                return
            seen = 0
            job = client.jobs.get(job_id)
            events = client.jobs.stream(job)
            for event in events:
                if event.name not in ("log", "alert", "state", "end"):
                    continue
                # The stream says that something is new; the log has every entry, in order.
                for entry in client.jobs.log(job, after=seen):
                    seen = entry.seq
                    _show(entry, as_json)
    except KeyboardInterrupt:
        again = at.command(f"logs {job_id} -f")
        err.print(f"The job keeps running. To follow its log again: {again}", markup=False)
        raise typer.Exit(EXIT_INTERRUPTED) from None


def _show(entry: JobLogEntry, as_json: bool) -> None:
    if as_json:
        typer.echo(encode(entry))
        return
    text, style = log_line(
        {
            "at": entry.at.astimezone().isoformat(),
            "level": entry.level or ("error" if entry.kind == "attempt" else entry.kind),
            "message": _message(entry),
            "fields": _data(entry).get("fields"),
        }
    )
    out.print(text, style=style, markup=False)


def _message(entry: JobLogEntry) -> str:
    """The message; for attempts and alerts, with the code and the attempt number."""
    data = _data(entry)
    parts = [entry.message]
    if entry.kind != "log" and data.get("code"):
        parts.insert(0, str(data["code"]))
    if entry.kind == "attempt" and data.get("attempt"):
        parts.insert(0, f"attempt {data['attempt']} {data.get('outcome', 'failed')}")
    return ": ".join(filter(None, parts))


def _data(entry: JobLogEntry) -> Mapping[str, Any]:
    return entry.data if isinstance(entry.data, Mapping) else {}


@on_server
def job(
    at: ServerConfig,
    job_id: JobArgument,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the job ends.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show a job."""
    with at.client() as client:
        found = client.jobs.get(job_id)
    show(ended(at, found, shown=False) if wait else found, as_json=as_json)


@on_server
def watch(
    at: ServerConfig,
    either_id: Annotated[str, typer.Argument(metavar="ID", help="The ID of a job or a batch.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each event as a line of JSON.")
    ] = False,
) -> None:
    """Follow a job or a batch until it ends. Exit code 1 if it does not complete.

    Shows progress, the log and why the job waits. Ctrl-C stops watching; the job
    keeps running.
    """
    with at.client() as client, until_nobody_reads():
        found = _job_or_batch(client, either_id)
        if isinstance(found, Batch):
            _watch_batch(found, at, as_json)
        else:
            _watch_job(found, at, as_json)


def _job_or_batch(client: Client, either_id: str) -> JobDetails | Batch:
    try:
        return client.jobs.get(either_id)
    except NotFoundError as no_job:
        try:
            return client.batches.get(either_id)
        except NotFoundError:
            raise no_job from None


def _watch_job(found: JobDetails, at: ServerConfig, as_json: bool) -> None:
    found = ended(at, found, shown=True, as_json=as_json)
    if as_json:
        json_line("end", job=found.raw)
    else:
        show(found, as_json=False)
    require_completed(at, found)


def _watch_batch(found: Batch, at: ServerConfig, as_json: bool) -> None:
    if not as_json:
        batch.show(found, at, watching=True)
        return
    batch.follow(found, at, as_json=True)
    json_line("end", batch=found.raw)
    batch.require_success(found, at)


_PAGE_JOBS: Final = 200
_LOOK_SECONDS: Final = 2.0
_HEADING_LINES: Final = 3
_GAP: Final = 2
_ENDPOINT_CHARACTERS_MAX: Final = 40


@on_server
def jobs(
    at: ServerConfig,
    state: StateOption = None,
    lane: LaneOption = None,
    surface: SurfaceOption = None,
    service: ServiceOption = None,
    endpoint: EndpointOption = None,
    owner: Annotated[str | None, typer.Option(help="Only jobs of this user.")] = None,
    error_code: ErrorCodeOption = None,
    query: Annotated[
        str | None, typer.Option("--query", "-q", help="A job ID, idempotency key or request ID.")
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
    chosen = _ChosenJobs(
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


class _ChosenJobs:
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


def _watch(client: Client, chosen: _ChosenJobs, limit: int) -> None:
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
