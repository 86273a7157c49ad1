"""``coatcheck submit`` and ``coatcheck job``: the engine, tried from the command line."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import json
import shlex
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from coatcheck.cli.console import err, out
from coatcheck.cli.data_dir import DataOption, settings_for
from coatcheck.cli.errors import EXIT_FAILED, Misconfigured, reporting_errors
from coatcheck.cli.own_command import own_command
from coatcheck.domain.errors import DatabaseUnavailable
from coatcheck.domain.job import JobView
from coatcheck.domain.states import State
from coatcheck.engine import Engine
from coatcheck.store.line import Line
from coatcheck.store.services import list_code
from coatcheck.telemetry.logs import configure_logging

_WAIT_SECONDS: Final = 60.0


@reporting_errors
def submit(
    endpoint: Annotated[str, typer.Argument(help="Such as demo.post__echo.")],
    payload: Annotated[str, typer.Argument(help="The arguments, as a JSON object.")] = "{}",
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the job's end.")] = False,
    lane: Annotated[str | None, typer.Option(help="urgent, standard or bulk.")] = None,
    key: Annotated[str | None, typer.Option(help="An idempotency key.")] = None,
    data: DataOption = None,
) -> None:
    """Hand a job in, and show it. Exit code 1 if it was waited for and did not complete."""
    arguments = _checked_json(payload)

    async def hand_in(engine: Engine) -> JobView:
        ticket = await engine.submit(endpoint, arguments, lane=lane, idempotency_key=key)
        await _warn_of_a_name_nobody_serves(data, endpoint)
        view = await engine.get(ticket.id)
        return await _ended(engine, view, data) if wait else view

    view = _with_engine(data, hand_in)
    _show(view)
    if wait and view.state is not State.COMPLETED:
        raise typer.Exit(EXIT_FAILED)


@reporting_errors
def job(
    job_id: Annotated[str, typer.Argument(metavar="ID")],
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the job's end.")] = False,
    data: DataOption = None,
) -> None:
    """Show a job."""

    async def look(engine: Engine) -> JobView:
        view = await engine.get(job_id)
        return await _ended(engine, view, data) if wait else view

    _show(_with_engine(data, look))


async def _ended(engine: Engine, view: JobView, data: Path | None) -> JobView:
    """The job as it ended. Whoever will not wait so long is told how to come back to it."""
    try:
        while not view.terminal:
            view = await engine.wait(view.id, timeout=_WAIT_SECONDS)
    except asyncio.CancelledError:  # Ctrl-C
        again = f"{own_command()} job {view.id} --wait"
        if data is not None:
            again += f" --data {shlex.quote(str(data))}"
        err.print(f"The job goes on. To look again: {again}", markup=False)
        raise
    return view


def _with_engine(data: Path | None, work: Callable[[Engine], Awaitable[JobView]]) -> JobView:
    settings = settings_for(data)
    configure_logging("warning", settings.log_format)

    async def connected() -> JobView:
        async with await Engine.connect(settings) as engine:
            return await work(engine)

    try:
        return asyncio.run(connected())
    except DatabaseUnavailable as error:
        raise DatabaseUnavailable(
            f"{error}\nIs `coatcheck up` running? If it has a folder of its own, name it with "
            "--data; else set COATCHECK_DATABASE_URL."
        ) from error


async def _warn_of_a_name_nobody_serves(data: Path | None, endpoint: str) -> None:
    """A job may be handed in before its worker first starts, so a typo is accepted, and waits."""
    async with contextlib.AsyncExitStack() as closing:
        line = Line(settings_for(data).database_url, name="submit")
        closing.push_async_callback(line.close)
        known = [
            spec.engine_endpoint
            for service in await list_code(line)
            for version in service.versions.values()
            for spec in version.endpoints
        ]
    if endpoint in known:
        return
    nearest = difflib.get_close_matches(endpoint, known, n=1)
    meant = f" Did you mean {nearest[0]}?" if nearest else ""
    err.print(
        f"warning: no worker has served {endpoint} yet; the job waits for one.{meant}",
        style="yellow",
        markup=False,
    )


def _checked_json(text: str) -> bytes:
    """The text as it is, known to be JSON: what a handler gets is what was typed."""
    raw = text.encode()
    try:
        msgspec.json.decode(raw)
    except msgspec.DecodeError as error:
        raise Misconfigured(
            f"the payload is not JSON: {error}\n"
            """Quote it for the shell, for instance '{"message": "hello"}'."""
        ) from error
    return raw


def _show(view: JobView) -> None:
    shown: dict[str, Any] = {
        "id": view.id,
        "state": view.state.value,
        "terminal": view.terminal,
        "endpoint": view.endpoint,
        "lane": view.lane.value,
        "attempts": view.attempts,
        "created_at": view.created_at.isoformat(),
        "finished_at": None if view.finished_at is None else view.finished_at.isoformat(),
        "progress": view.progress,
        "progress_note": view.progress_note,
        "result": None if view.result is None else json.loads(view.result),
        "error": None
        if view.error_code is None
        else {"code": view.error_code, "message": view.error_message},
    }
    if sys.stdout.isatty():
        out.print_json(data=shown)
    else:
        typer.echo(json.dumps(shown))
