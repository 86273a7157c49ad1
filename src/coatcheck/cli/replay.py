"""``coatcheck replay --local``: runs a job's handler in this process, under the debugger."""

from __future__ import annotations

import asyncio
import bdb
import inspect
import pdb  # noqa: T100 - this command is a debugger
import shutil
import sys
import tempfile
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any
from uuid import UUID

import typer

from coatcheck.cli.command_errors import EXIT_FAILED, Misconfigured
from coatcheck.cli.console import err, out, plain, warn
from coatcheck.cli.job_display import log_line
from coatcheck.cli.jobs import JobArgument
from coatcheck.cli.server_address import ServerConfig, on_server
from coatcheck.client import ConflictError, JobDetails
from coatcheck.domain import ids
from coatcheck.domain.errors import InvalidInput, JobSignal, SettingsInvalid
from coatcheck.domain.lanes import Lane
from coatcheck.encoding import encode
from coatcheck.job import DONE, Attachment, Chunk, Job, LogLine, ProgressReport, Report
from coatcheck.service import Endpoint, load_services


class LocalRun:
    """One run of a job's handler that no server knows about."""

    def __init__(
        self, endpoint: Endpoint, details: JobDetails, payload: bytes, *, as_json: bool = False
    ) -> None:
        self._endpoint = endpoint
        self._payload = payload
        self._as_json = as_json
        self._folder = Path(tempfile.mkdtemp(prefix="coatcheck-replay-"))
        temp_dir = None
        if endpoint.kind == "isolated":
            temp_dir = self._folder / "temp"
            temp_dir.mkdir()
        self._job = Job(
            _uuid(details.id),
            details.org_id,
            details.engine_endpoint,
            Lane(details.lane),
            max(1, details.attempts),
            len(payload),
            details.request_id,
            TerminalReporter(self._folder),
            temp_dir,
        )

    def to_its_end(self, *, breaks: bool, post_mortem: bool) -> bool:
        """Run the handler, print its result or where it failed; returns whether it succeeded."""
        if self._endpoint.kind == "isolated":
            warn("the handler runs in this process, without its memory and CPU limits")
        try:
            value = self._stopping_first() if breaks else self._call()
            result = encode(value)
        except bdb.BdbQuit:
            return False
        except Exception as error:  # noqa: BLE001 - any error of the handler is shown
            error.__traceback__ = self._of_the_handler(error.__traceback__)
            self._show_error(error)
            if post_mortem:
                pdb.post_mortem(error.__traceback__)
            return False
        finally:
            self._list_files()
        if self._as_json or not sys.stdout.isatty():
            typer.echo(result)
        else:
            out.print_json(result.decode())
        return True

    def _call(self) -> Any:
        arguments = self._endpoint.decode(self._payload)
        if self._endpoint.job_parameter is not None:
            arguments[self._endpoint.job_parameter] = self._job
        return _returned(self._endpoint.function, arguments)

    def _stopping_first(self) -> Any:
        """The same under pdb, stopped at the handler's first line."""
        code = inspect.unwrap(self._endpoint.function).__code__
        body = [line for _, _, line in code.co_lines() if line and line > code.co_firstlineno]
        first = min(body, default=code.co_firstlineno)
        debugger = pdb.Pdb()
        debugger.rcLines += [f"tbreak {code.co_filename}:{first}", "continue"]
        returned: list[Any] = []
        debugger.runcall(lambda: returned.append(self._call()))
        if not returned:
            raise bdb.BdbQuit  # the user quit the debugger before the handler returned
        return returned[0]

    def _of_the_handler(self, trace: TracebackType | None) -> TracebackType | None:
        """The frames from the handler on; all frames if the handler was not reached."""
        handler = inspect.unwrap(self._endpoint.function).__code__
        found = trace
        while found is not None and found.tb_frame.f_code is not handler:
            found = found.tb_next
        return found or trace

    def _show_error(self, error: Exception) -> None:
        if isinstance(error, JobSignal | InvalidInput):
            # Raised on purpose by the handler: the traceback is of no use.
            code = f" ({error.code})" if hasattr(error, "code") else ""
            text = f"{type(error).__name__}: {error}{code}"
            err.print(plain(text), style="red", markup=False)
        else:
            # The message may quote the input, which may contain control characters.
            for line in "".join(traceback.format_exception(error)).splitlines():
                err.print(plain(line), markup=False)

    def _list_files(self) -> None:
        files = sorted(path for path in self._folder.rglob("*") if path.is_file())
        if not files:
            shutil.rmtree(self._folder, ignore_errors=True)
        for path in files:
            err.print(f"file: {path}", style="dim", markup=False)


def _uuid(job_id: str) -> UUID:
    """The ID of a job, or of a task, which is written in another form."""
    try:
        return ids.from_text(job_id)
    except ids.InvalidId:
        return UUID(hex=job_id)


def _returned(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    if not inspect.iscoroutinefunction(function):
        return function(**arguments)

    async def run() -> Any:
        return await function(**arguments)

    return asyncio.run(run())


class TerminalReporter:
    """Prints what a handler reports to stderr, and writes its files to a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def report(self, report: Report) -> Awaitable[None]:
        match report:
            case ProgressReport(fraction=fraction, note=note):
                text = f"{fraction:>4.0%}  {plain(note or '')}".rstrip()
                err.print(text, style="dim", markup=False)
            case LogLine(message=message, level=level, fields=fields):
                text, style = log_line({"level": level, "message": message, "fields": fields})
                err.print(text, style=style, markup=False)
            case Chunk(kind="binary", data=data):
                err.print(f"(emitted {len(data):,} bytes)", style="dim")
            case Chunk(data=data):
                err.print(plain(data.decode("utf-8", "replace")), markup=False)
            case Attachment(name=name, data=data):
                self._keep(name, data)
        return DONE

    def _keep(self, name: str, data: Any) -> None:
        with (self._folder / name).open("wb") as file:
            if isinstance(data, bytes):
                file.write(data)
            elif isinstance(data, Path):
                with data.open("rb") as source:
                    shutil.copyfileobj(source, file)
            else:
                shutil.copyfileobj(data, file)


@on_server
def replay(
    at: ServerConfig,
    job_id: JobArgument,
    services: Annotated[
        list[str],
        typer.Argument(metavar="MODULE:SERVICE", help="The services to look for its endpoint in."),
    ],
    is_local: Annotated[
        bool, typer.Option("--local", help="Run the job in this process. Required.")
    ] = False,
    breaks: Annotated[
        bool, typer.Option("--break", help="Break at the handler's first line.")
    ] = False,
    debugs: Annotated[
        bool, typer.Option("--debugger/--no-debugger", help="Open pdb where the handler fails.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result on one line.")] = False,
) -> None:
    """Run a job's handler on this machine with the same input, under the debugger.

    Progress and log go to stderr, files to a temporary folder, the result to stdout.
    Nothing is written to the server. Exit code 1 if the handler fails.
    """
    if not is_local:
        raise Misconfigured(
            "--local is required: replay runs the job in this process\n"
            f"To run it again on the server: {at.command(f'retry {job_id}')}"
        )
    with at.client() as client:
        job = client.jobs.get(job_id)
        endpoint = _endpoint(services, job.engine_endpoint)
        try:
            payload = client.jobs.input(job_id)
        except ConflictError as error:
            raise Misconfigured(
                f"{error.message}\nThe server keeps the input of failed and cancelled jobs until "
                "the job expires, unless the endpoint is declared with keep_input=False."
            ) from error
    from coatcheck.cli.replay import LocalRun

    run = LocalRun(endpoint, job, payload, as_json=as_json)
    interactive = debugs and sys.stdin.isatty()
    if not run.to_its_end(breaks=breaks and interactive, post_mortem=interactive):
        raise typer.Exit(EXIT_FAILED)


def _endpoint(targets: list[str], wanted: str) -> Endpoint:
    found: dict[str, Endpoint] = {}
    try:
        for service in load_services(targets):
            found |= {endpoint.name: endpoint for endpoint in service.endpoints.values()}
    except SettingsInvalid:
        raise
    except Exception as error:
        # The module is user code: importing it may raise anything.
        raise Misconfigured(
            f"cannot load {' '.join(targets)}: {type(error).__name__}: {error}\n"
            "`coatcheck --debug replay ...` shows the traceback."
        ) from error
    if wanted not in found:
        raise Misconfigured(
            f"{' '.join(targets)} does not have the job's endpoint {wanted}\n"
            f"Endpoints: {', '.join(found) or 'none'}."
        )
    return found[wanted]
