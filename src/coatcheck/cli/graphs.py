"""``coatcheck graphs``: builds code graphs of a folder or a zip."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from coatcheck.cli.command_errors import EXIT_FAILED, Misconfigured
from coatcheck.cli.console import err, plain
from coatcheck.cli.entry import EXIT_INTERRUPTED
from coatcheck.cli.server_address import ServerConfig, on_server
from coatcheck.client import GraphJob
from coatcheck.client.models import GraphOperation

_LEFT_OUT: Final = frozenset(
    {
        *(".git", ".hg", ".svn", ".venv", "venv", "node_modules", "__pycache__"),
        *(".tox", ".nox", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".coatcheck"),
    }
)
"""Folders without the project's own code; the server would not parse them either."""

_EARLIEST: Final = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip can hold. All files get it, so one folder always gives one zip."""


@contextmanager
def archive_of(path: Path) -> Iterator[Path]:
    """The zip itself, or a temporary zip of the folder."""
    if not path.is_dir():
        if not path.exists():
            raise Misconfigured(f"{path} does not exist\nName a folder with code, or a zip.")
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="coatcheck-") as folder:
        made = Path(folder, "code.zip")
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in _files(path):
                entry = zipfile.ZipInfo(file.relative_to(path).as_posix(), _EARLIEST)
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, file.read_bytes())
        if not archive.namelist():
            raise Misconfigured(f"{path} contains no files to send")
        yield made


def _files(folder: Path) -> Iterator[Path]:
    """Regular files in order of their names. Links are skipped: they may point anywhere."""
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT)
        for name in sorted(names):
            file = Path(parent, name)
            if file.is_file() and not file.is_symlink():
                yield file


app: Final = typer.Typer(
    name="graphs", no_args_is_help=True, help="Build a graph of the code in a folder or a zip."
)

PathArgument = Annotated[Path, typer.Argument(metavar="PATH", help="A folder with code, or a zip.")]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE", help="Write the graph to this file. Default: stdout."
    ),
]
KeyOption = Annotated[
    str | None, typer.Option("--key", help="Idempotency key: the same key returns the same job.")
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="With -o: print the job ID, the file and statistics as JSON.")
]


@app.command()
@on_server
def dependency(
    at: ServerConfig,
    path: PathArgument,
    output: OutputOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show which files import which files and external modules."""
    _generate(at, "dependency", path, output, key, as_json)


@app.command()
@on_server
def call(
    at: ServerConfig,
    path: PathArgument,
    output: OutputOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show which functions call which."""
    _generate(at, "call", path, output, key, as_json)


@app.command()
@on_server
def domain(
    at: ServerConfig,
    path: PathArgument,
    output: OutputOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the domains that the code is divided into."""
    _generate(at, "domain", path, output, key, as_json)


@app.command()
@on_server
def parse(
    at: ServerConfig,
    path: PathArgument,
    output: OutputOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """List files, classes, functions and types."""
    _generate(at, "parse", path, output, key, as_json)


@app.command()
@on_server
def supermodel(
    at: ServerConfig,
    path: PathArgument,
    output: OutputOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Build one graph with all of the above."""
    _generate(at, "supermodel", path, output, key, as_json)


def _generate(
    at: ServerConfig,
    operation: GraphOperation,
    path: Path,
    output: Path | None,
    key: str | None,
    as_json: bool,
) -> None:
    if output is not None and output.is_dir():
        raise Misconfigured(f"{output} is a folder\n-o takes the name of a file.")
    with at.client() as client:
        with archive_of(path) as archive:
            job = client.graphs.submit(operation, archive, idempotency_key=key)
        try:
            with _progress() as show:
                job = client.graphs.wait(job, on_progress=show, raise_on_failure=False)
        except KeyboardInterrupt:
            again = at.command(f"watch {job.id}")
            err.print(f"The job keeps running. To watch it again: {again}", markup=False)
            raise typer.Exit(EXIT_INTERRUPTED) from None
    if job.status != "completed":
        why = f"{job.error.message} ({job.error.code})" if job.error else job.status
        err.print(f"error: {plain(why)}", style="red", markup=False)
        err.print(f"  {at.command(f'explain {job.id} --timeline')}", style="dim", markup=False)
        raise typer.Exit(EXIT_FAILED)
    _write(job, output, as_json)


def _write(job: GraphJob, output: Path | None, as_json: bool) -> None:
    if output is None:
        json.dump(job.result, sys.stdout, indent=2 if sys.stdout.isatty() else None)
        typer.echo("")
        return
    output.write_text(json.dumps(job.result), "utf-8")
    stats: dict[str, Any] = job.result.get("stats", {})
    if as_json:
        typer.echo(json.dumps({"job_id": job.id, "file": str(output), "stats": stats}))
        return
    typer.echo(str(output))
    nodes, relationships = stats.get("nodeCount", 0), stats.get("relationshipCount", 0)
    err.print(f"{nodes:,} nodes, {relationships:,} relationships", style="dim", markup=False)


@contextmanager
def _progress() -> Iterator[Callable[[GraphJob], object]]:
    """A progress bar on a terminal; otherwise a line at each change of status."""
    if not err.is_terminal:
        yield _GraphLines().show
        return
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TimeElapsedColumn(),
        console=err,
    ) as progress:
        task = progress.add_task("pending", total=None)

        def show(job: GraphJob) -> None:
            reported = job.progress
            note = plain(reported.note) if reported is not None and reported.note else ""
            fraction = None if reported is None else reported.fraction
            progress.update(
                task,
                description=f"{job.status}  {note}".rstrip(),
                total=None if fraction is None else 1.0,
                completed=fraction or 0.0,
            )

        yield show


class _GraphLines:
    def __init__(self) -> None:
        self._status = ""

    def show(self, job: GraphJob) -> None:
        if job.status != self._status:
            self._status = job.status
            err.print(job.status, markup=False)
