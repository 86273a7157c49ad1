"""``coatcheck explain``: why a job waits, and what comes next."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from coatcheck.cli.common_options import JsonOption
from coatcheck.cli.console import out, plain
from coatcheck.cli.job_filters import JobArgument
from coatcheck.cli.job_show import span
from coatcheck.cli.server_address import Server
from coatcheck.cli.server_options import on_server
from coatcheck.client import JobBlocker, JobExplanation, TimelineEntry
from coatcheck.encoding import encode

_WAITING: Final = frozenset({"staged", "queued", "retrying"})


@on_server
def explain(
    at: Server,
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
