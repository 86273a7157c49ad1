"""``coatcheck logs``: shows a job's log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from coatcheck.cli.common_options import JsonOption
from coatcheck.cli.console import err, out, until_nobody_reads
from coatcheck.cli.entry import EXIT_INTERRUPTED
from coatcheck.cli.job_display import log_line
from coatcheck.cli.job_filters import JobArgument
from coatcheck.cli.server_address import Server
from coatcheck.cli.server_options import on_server
from coatcheck.client import JobLogEntry
from coatcheck.encoding import encode


@on_server
def logs(
    at: Server,
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
