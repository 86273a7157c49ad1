"""``coatcheck job`` shows a job; ``coatcheck watch`` follows a job or a batch until it ends."""

from __future__ import annotations

from typing import Annotated

import typer

from coatcheck.cli import batch_follow
from coatcheck.cli.common_options import JsonOption
from coatcheck.cli.console import until_nobody_reads
from coatcheck.cli.job_display import json_line
from coatcheck.cli.job_filters import JobArgument
from coatcheck.cli.job_follow import ended, require_completed
from coatcheck.cli.job_show import show
from coatcheck.cli.server_address import Server
from coatcheck.cli.server_options import on_server
from coatcheck.client import Batch, Client, JobDetails, NotFoundError


@on_server
def job(
    at: Server,
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
    at: Server,
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


def _watch_job(found: JobDetails, at: Server, as_json: bool) -> None:
    found = ended(at, found, shown=True, as_json=as_json)
    if as_json:
        json_line("end", job=found.raw)
    else:
        show(found, as_json=False)
    require_completed(at, found)


def _watch_batch(found: Batch, at: Server, as_json: bool) -> None:
    if not as_json:
        batch_follow.show(found, at, watching=True)
        return
    batch_follow.follow(found, at, as_json=True)
    json_line("end", batch=found.raw)
    batch_follow.require_success(found, at)
