"""``coatcheck explain``: why a job is where it is."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from coatcheck.cli.common_options import JsonOption
from coatcheck.cli.console import out, plain
from coatcheck.cli.job_filters import JobArgument
from coatcheck.cli.job_show import span
from coatcheck.cli.remote import Server
from coatcheck.cli.server_options import on_server
from coatcheck.client import JobBlocker, JobExplanation, TimelineEntry
from coatcheck.encoding import encode

_WAITING: Final = frozenset({"staged", "queued", "retrying"})


@on_server
def explain(
    at: Server,
    job_id: JobArgument,
    with_timeline: Annotated[
        bool, typer.Option("--timeline", help="Show what has happened to it, too.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Say what a job waits for, its place in the queue, and when it will start and end."""
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
    """The explanation as text: its summary, what is in the way, where it stands, and until when."""
    said = [plain(found.summary)]
    said += [f"  {text}" for each in found.blockers if (text := _blocker(each, found.summary))]
    if found.position is not None:
        said.append(f"  number {found.position:,} in its queue")
    eta = found.eta
    if eta is not None:
        for name, p50, p90 in (
            ("starts", eta.start_p50 if found.state in _WAITING else None, eta.start_p90),
            ("ends", eta.end_p50, eta.end_p90),
        ):
            if p50 is not None:
                about, late = span(p50), span(p50 if p90 is None else p90)
                most = "" if late == about else f", nine times of ten within {late}"
                said.append(f"  {name} in about {about}{most}")
    return said


def timeline_line(entry: TimelineEntry) -> str:
    """Something that happened, on one line."""
    told = [f"{entry.at.astimezone():%m-%d %H:%M:%S}", entry.kind]
    if entry.attempt:
        told.append(f"attempt {entry.attempt}")
    if entry.code or entry.message:
        told.append(": ".join(filter(None, (entry.code, entry.message))))
    return plain("  ".join(told))


def _blocker(blocker: JobBlocker, summary: str) -> str:
    """What is in the way, as far as the summary has not said it."""
    told = []
    if blocker.message not in summary:
        told.append(blocker.message)
        if blocker.until is not None:
            told.append(f"until {blocker.until.astimezone():%H:%M:%S}")
    if blocker.holders:
        told.append(f"held by {', '.join(blocker.holders)}")
    return plain("  ".join(told))
