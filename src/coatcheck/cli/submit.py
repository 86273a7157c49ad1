"""``coatcheck submit``, ``cancel`` and ``retry``: the commands that change jobs."""

from __future__ import annotations

import difflib
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import quote

import msgspec
import typer

from coatcheck.cli import options
from coatcheck.cli.command_errors import EXIT_FAILED, Misconfigured
from coatcheck.cli.console import complain, err, warn
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
from coatcheck.cli.server_address import ServerConfig, on_server
from coatcheck.client import BulkOutcome, Client, NotFoundError, PermissionDeniedError
from coatcheck.encoding import encode

_NAME: Final = re.compile(r"(?P<service>[^./]+)\.(?:v(?P<version>[0-9]+)\.)?(?P<key>[^./]+)")
_PARAMETER: Final = re.compile(r"\{(\w+)\}")


@on_server
def submit(
    at: ServerConfig,
    endpoint: Annotated[
        str,
        typer.Argument(
            metavar="ENDPOINT", help="The endpoint, such as demo/echo or demo.post__echo."
        ),
    ],
    payload: Annotated[
        str,
        typer.Argument(
            metavar="JSON", help="The arguments as a JSON object, @FILE, or - for standard input."
        ),
    ] = "{}",
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the job ends.")] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show its progress and log until the job ends.")
    ] = False,
    lane: Annotated[str | None, typer.Option(help="The lane: urgent, standard or bulk.")] = None,
    delay: Annotated[
        int | None,
        typer.Option(
            parser=options.seconds,
            metavar="SPAN",
            help="Start the job later, such as in 90s, 15m or 2h.",
        ),
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="Idempotency key: the same key returns the same job.")
    ] = None,
    method: Annotated[
        str, typer.Option(help="The HTTP method of an endpoint named by its path.")
    ] = "POST",
    service_version: Annotated[
        int | None, typer.Option("--service-version", help="Version of the service.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Submit a job and show it.

    With --wait or --watch, exit code 1 if the job does not complete.
    """
    body = _checked_json(payload)
    with at.client() as client:
        service, version, method, path, body = _target(
            client, endpoint, service_version, method.upper(), body
        )
        ticket = client.submit(
            service,
            path,
            body,
            version=version,
            method=method,
            lane=lane,
            idempotency_key=key,
            delay=delay,
        )
        if ticket.mismatch:
            warn("this idempotency key was used with other input; showing the job created then")
        try:
            job = client.jobs.get(ticket.id)
        except PermissionDeniedError:
            if wait or watch:
                raise
            warn("the API key lacks the scope read: it can submit jobs but not show them")
            as_text = sys.stdout.isatty() and not as_json
            typer.echo(ticket.id if as_text else encode({"id": ticket.id}))
            return
        if wait or watch:
            job = ended(at, job, shown=watch)
    show(job, as_json=as_json)
    if wait or watch:
        require_completed(at, job)


def _target(
    client: Client, endpoint: str, version: int | None, method: str, body: bytes
) -> tuple[str, int | None, str, str, bytes]:
    """The service, version, method and path, and the body without the path's parameters."""
    service, slash, path = endpoint.partition("/")
    if slash:
        if not service:
            raise Misconfigured(
                f"{endpoint!r} has no service\nWrite SERVICE/PATH, such as demo/echo."
            )
        return service, version, method, path, body
    named = _NAME.fullmatch(endpoint)
    if named is None:
        raise Misconfigured(
            f"{endpoint!r} is not an endpoint\n"
            "Write SERVICE/PATH, such as demo/echo, or the endpoint's key: demo.post__echo."
        )
    if named["version"]:
        version = int(named["version"])
    found = _endpoint(client, named["service"], version, named["key"])
    path, body = _filled(found["path"], body)
    return named["service"], version, found["method"], path, body


def _endpoint(client: Client, service: str, version: int | None, key: str) -> dict[str, Any]:
    try:
        shown = client.service(service)
    except NotFoundError:
        raise Misconfigured(
            f"service {service!r} not found\n"
            "A worker must have published it: start `coatcheck up MODULE:SERVICE` or "
            "`coatcheck worker MODULE:SERVICE`."
        ) from None
    versions: dict[str, Any] = shown["definition"]["versions"]
    wanted = str(shown["latest_version"] if version is None else version)
    if wanted not in versions:
        raise Misconfigured(
            f"service {service!r} has no version {wanted}\nVersions: {', '.join(versions)}."
        )
    endpoints: list[dict[str, Any]] = versions[wanted]["endpoints"]
    for each in endpoints:
        if each["key"] == key:
            return each
    keys = [each["key"] for each in endpoints]
    nearest = difflib.get_close_matches(key, keys, n=1) or [
        each for each in keys if each.endswith(f"__{key}")
    ]
    meant = f" Did you mean {service}.{nearest[0]}?" if nearest else ""
    has = ", ".join(f"{service}.{each}" for each in keys)
    raise Misconfigured(f"service {service!r} has no endpoint {key!r}.{meant}\nEndpoints: {has}.")


def _filled(path: str, body: bytes) -> tuple[str, bytes]:
    """The path with its parameters filled from the arguments."""
    names = _PARAMETER.findall(path)
    if not names:
        return path, body
    arguments = msgspec.json.decode(body)
    if not isinstance(arguments, dict) or not all(name in arguments for name in names):
        raise Misconfigured(f"the path {path} needs these arguments: {', '.join(names)}")
    for name in names:
        value = arguments.pop(name)
        text = value if isinstance(value, str) else encode(value).decode()
        path = path.replace(f"{{{name}}}", quote(text, safe=""))
    return path, encode(arguments)


def _checked_json(text: str) -> bytes:
    """The text unchanged, once it is known to be JSON."""
    if text == "-":
        raw = sys.stdin.buffer.read()
    elif text.startswith("@"):
        raw = Path(text[1:]).read_bytes()
    else:
        raw = text.encode()
    try:
        msgspec.json.decode(raw)
    except msgspec.DecodeError as error:
        raise Misconfigured(
            f"the payload is not JSON: {error}\n"
            """Quote it for the shell, such as '{"message": "hello"}'."""
        ) from error
    return raw


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
