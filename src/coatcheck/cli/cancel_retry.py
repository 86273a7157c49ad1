"""``coatcheck cancel`` and ``coatcheck retry``: one job, several, or all that match a filter."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import typer

from coatcheck.cli.console import complain, err
from coatcheck.cli.errors import EXIT_FAILED, Misconfigured
from coatcheck.cli.job_display import ended, line, require_completed, show
from coatcheck.cli.jobs import (
    EndpointOption,
    ErrorCodeOption,
    LaneOption,
    ServiceOption,
    StateOption,
    SurfaceOption,
)
from coatcheck.cli.options import JsonOption, SinceOption, UntilOption
from coatcheck.cli.server_address import ServerConfig
from coatcheck.cli.server_options import on_server
from coatcheck.client import BulkOutcome, Client
from coatcheck.encoding import encode

_IDS_AT_ONCE: Final = 200

JobsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="JOB", help="Job IDs. Without any, a filter selects the jobs."),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


@on_server
def cancel(
    at: ServerConfig,
    job_ids: JobsArgument = None,
    state: StateOption = None,
    lane: LaneOption = None,
    surface: SurfaceOption = None,
    service: ServiceOption = None,
    endpoint: EndpointOption = None,
    error_code: ErrorCodeOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    is_sure: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Cancel jobs.

    Name the jobs, or select them with a filter; without --state that means jobs that
    have not ended. Exit code 1 if a job could not be cancelled.
    """
    chosen = _Filter(state, lane, surface, service, endpoint, error_code, since, until)
    with at.client() as client:
        if job_ids is not None and len(job_ids) == 1 and not chosen:
            found = client.jobs.cancel(job_ids[0])
            typer.echo(encode(found.raw) if as_json else line(found))
            return
        _all(client, "cancel", job_ids, chosen, is_sure, as_json)


@on_server
def retry(
    at: ServerConfig,
    job_ids: JobsArgument = None,
    state: StateOption = None,
    lane: LaneOption = None,
    surface: SurfaceOption = None,
    service: ServiceOption = None,
    endpoint: EndpointOption = None,
    error_code: ErrorCodeOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Follow the new job until it ends.")
    ] = False,
    key: Annotated[str | None, typer.Option(help="Idempotency key of the new job.")] = None,
    is_sure: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Resubmit failed jobs with the same input.

    Each retry is a new job. Name the jobs, or select them with a filter; without
    --state that means jobs that failed. With --watch, exit code 1 if the new job
    does not complete.
    """
    chosen = _Filter(state, lane, surface, service, endpoint, error_code, since, until)
    with at.client() as client:
        if job_ids is not None and len(job_ids) == 1 and not chosen:
            made = client.jobs.retry(job_ids[0], idempotency_key=key)
            if watch:
                made = ended(at, made, shown=True)
            show(made, as_json=as_json)
            if watch:
                require_completed(at, made)
            return
        if watch or key is not None:
            raise Misconfigured("--watch and --key work with a single job only")
        _all(client, "retry", job_ids, chosen, is_sure, as_json)


@dataclass(frozen=True, slots=True)
class _Filter:
    state: list[str] | None
    lane: str | None
    surface: str | None
    service: str | None
    endpoint: str | None
    error_code: str | None
    created_after: Any
    created_before: Any

    def options(self) -> dict[str, Any]:
        named = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in named.items() if value is not None}

    def __bool__(self) -> bool:
        return bool(self.options())


def _all(
    client: Client,
    action: Literal["cancel", "retry"],
    job_ids: list[str] | None,
    chosen: _Filter,
    is_sure: bool,
    as_json: bool,
) -> None:
    if bool(job_ids) == bool(chosen):
        raise Misconfigured(
            f"name the jobs to {action}, or select them with a filter, not both\n"
            "For example --state failed --since 2h. `coatcheck jobs` takes the same filters and "
            "lists what they match."
        )
    if not job_ids:
        # Listed first: the filter must not match the new jobs that a retry creates.
        job_ids = _matching(client, action, chosen)
        if not job_ids:
            err.print("No jobs match.", style="dim")
            return
        _confirm(action, len(job_ids), is_sure)
    failed = 0
    for start in range(0, len(job_ids), _IDS_AT_ONCE):
        done = client.jobs.bulk(action, job_ids[start : start + _IDS_AT_ONCE])
        failed += _report(done.items, as_json)
    if failed:
        raise typer.Exit(EXIT_FAILED)


def _matching(client: Client, action: Literal["cancel", "retry"], chosen: _Filter) -> list[str]:
    """The IDs of the jobs that a filter matches: by default live jobs to cancel, failed jobs to
    retry. Jobs that were already retried are left out."""
    options = {"state": "live" if action == "cancel" else "failed"} | chosen.options()
    return [job.id for job in client.jobs.list_all(**options) if job.retried_as is None]


def _confirm(action: str, count: int, is_sure: bool) -> None:
    if is_sure:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Misconfigured(f"this would {action} {_jobs(count)}\nAdd --yes to confirm.")
    typer.confirm(f"{action.capitalize()} {_jobs(count)}?", abort=True, err=True)


def _jobs(count: int) -> str:
    return f"{count:,} {'job' if count == 1 else 'jobs'}"


def _report(items: tuple[BulkOutcome, ...], as_json: bool) -> int:
    """Print the outcome of each job; returns how many failed."""
    failed = 0
    for item in items:
        if as_json:
            typer.echo(encode(item))
        elif item.ok:
            typer.echo(item.id if item.new_id is None else f"{item.id}  {item.new_id}")
        if not item.ok:
            failed += 1
            if not as_json:
                complain(f"{item.id}: {item.message} ({item.code})")
    return failed
