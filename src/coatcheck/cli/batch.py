"""``coatcheck batch``: submits and manages batches over HTTP."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Final, Protocol

import msgspec
import typer
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn

from coatcheck.cli.command_errors import EXIT_FAILED, Misconfigured
from coatcheck.cli.console import err, plain, until_nobody_reads
from coatcheck.cli.entry import EXIT_INTERRUPTED
from coatcheck.cli.job_display import TaskRate, json_line
from coatcheck.cli.options import JsonOption
from coatcheck.cli.server_address import ServerConfig, on_server
from coatcheck.client import Batch, BatchCounts, BatchTask, DeadLetter
from coatcheck.encoding import encode

_RESULT_CHARACTERS_MAX: Final = 200
_STATUSES: Final = ("pending", "running", "succeeded", "failed", "cancelled")


def report(batch: Batch) -> str:
    """A batch on several lines."""
    rows = [
        ("batch", f"{batch.id}  {batch.status}"),
        ("target", f"{batch.service} {batch.endpoint}"),
        ("counts", _counted(batch.counts)),
        ("list", f"{_number(batch.ingest.lines, 'line')}, {batch.ingest.bad_lines:,} invalid"),
    ]
    if batch.error is not None:
        rows.append(("error", f"{batch.error.message} ({batch.error.code})"))
    if len(batch.runs) > 1:
        rows += [
            (f"run {run.number}", f"{run.id}  {run.status}  {_counted(run.counts)}")
            for run in batch.runs
        ]
        rows.append(("all runs", _counted(batch.job_counts)))
    return "\n".join(f"{name:<9}{value}" for name, value in rows)


def summary(batch: Batch) -> str:
    """A batch on one line."""
    return f"{batch.status}  {_counted(batch.counts)}  {batch.service} {batch.endpoint}"


def has_succeeded(batch: Batch) -> bool:
    """Whether every line was a valid task and every task succeeded."""
    return (
        batch.status == "completed"
        and batch.counts.succeeded == batch.counts.total
        and batch.ingest.bad_lines == 0
    )


def task_line(task: BatchTask) -> str:
    """A task on one line: index, status, name, and its result or error."""
    outcome = ""
    if task.error is not None:
        outcome = f"{task.error.code}: {task.error.message}"
    elif task.result_url is not None:
        outcome = "(large result)"
    elif task.status == "succeeded":
        outcome = encode(task.result).decode()
    if len(outcome) > _RESULT_CHARACTERS_MAX:
        outcome = f"{outcome[:_RESULT_CHARACTERS_MAX]}..."
    # Names and results may contain control characters.
    shown = f"{task.index:>7}  {task.status:<9}  {task.custom_id or task.id}  {outcome}"
    return "".join(c if c.isprintable() else " " for c in shown).rstrip()


def dead_letter_line(letter: DeadLetter) -> str:
    """A list of tasks that could not be processed, on one line."""
    return f"{letter.id}  batch {letter.job_id}  {letter.error.code}: {letter.error.message}"


def _counted(counts: BatchCounts) -> str:
    numbers = {name: getattr(counts, name) for name in _STATUSES}
    return ", ".join(
        [_number(counts.total, "task"), *(f"{n:,} {name}" for name, n in numbers.items() if n)]
    )


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


LOOK_SECONDS: Final = 0.5
"""How long the server may hold a request while the batch has not ended."""
LINE_SECONDS: Final = 10.0
"""The interval between lines when stderr is not a terminal."""


class _Display(Protocol):
    def show(self, batch: Batch, task_rate: TaskRate, ingest: TaskRate, /) -> None: ...


def watch(batch: Batch, *, as_json: bool = False) -> Batch:
    """Show progress until the batch ends, and return the ended batch."""
    ended, ingested = TaskRate(), TaskRate()
    with _display(as_json) as display:
        while True:
            asked_at = time.monotonic()
            ended.look(asked_at, batch.counts.ended)
            ingested.look(asked_at, batch.ingest.lines)
            display.show(batch, ended, ingested)
            if batch.terminal:
                return batch
            batch.refresh(wait=LOOK_SECONDS)
            if not batch.terminal:
                # A server that is shutting down answers at once.
                time.sleep(max(0.0, asked_at + LOOK_SECONDS - time.monotonic()))


@contextmanager
def _display(as_json: bool) -> Iterator[_Display]:
    if as_json:
        yield _JsonLines()
        return
    if not err.is_terminal:
        yield _BatchLines()
        return
    with _bar() as progress:
        yield _Bar(progress)


def _bar() -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[figures]}"),
        console=err,
        expand=True,
    )


class _Bar:
    """A progress bar."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: TaskID = progress.add_task("", total=None, figures="")

    def show(self, batch: Batch, task_rate: TaskRate, ingest: TaskRate) -> None:
        counts = batch.counts
        self._progress.update(
            self._task,
            description=_heading(batch, ingest),
            total=counts.total or None,
            completed=counts.ended,
            figures=figures(batch, task_rate),
        )


class _BatchLines:
    """Prints a line at each change of status, and every ``LINE_SECONDS``."""

    def __init__(self) -> None:
        self._status = ""
        self._printed_at = 0.0

    def show(self, batch: Batch, task_rate: TaskRate, ingest: TaskRate) -> None:
        now = time.monotonic()
        if batch.status == self._status and now < self._printed_at + LINE_SECONDS:
            return
        self._status, self._printed_at = batch.status, now
        err.print(f"{_heading(batch, ingest)}  {figures(batch, task_rate)}", markup=False)


class _JsonLines:
    """Prints a line of JSON on stdout at each change, except the last."""

    def __init__(self) -> None:
        self._printed: Mapping[str, Any] | None = None

    def show(self, batch: Batch, _rate: TaskRate, _ingest: TaskRate) -> None:
        if batch.raw != self._printed and not batch.terminal:
            json_line("batch", batch=batch.raw)
        self._printed = batch.raw


def figures(batch: Batch, task_rate: TaskRate) -> str:
    """Ended and total tasks, rate, time left, and failures."""
    counts = batch.counts
    parts = [f"{counts.ended:,}/{counts.total:,}"]
    if not batch.terminal:
        rate = task_rate.per_second
        parts.append("-/s" if rate is None else f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s")
        left = task_rate.seconds_for(counts.total - counts.ended)
        if batch.status == "running" and left is not None:
            parts.append(f"ETA {timedelta(seconds=round(left))}")
    if counts.failed:
        parts.append(f"{counts.failed:,} failed")
    if counts.cancelled:
        parts.append(f"{counts.cancelled:,} cancelled")
    if batch.ingest.bad_lines:
        bad = batch.ingest.bad_lines
        parts.append(f"{bad:,} invalid {'line' if bad == 1 else 'lines'}")
    return "  ".join(parts)


def _heading(batch: Batch, ingest: TaskRate) -> str:
    if batch.status != "ingesting":
        return "cancelling" if batch.cancel_requested else batch.status
    rate = ingest.per_second
    speed = f" at {rate:,.0f}/s" if rate else ""
    return f"ingesting {batch.ingest.lines:,} lines{speed}"


def show(batch: Batch, at: ServerConfig, *, watching: bool, as_json: bool = False) -> None:
    """Print the batch as text or JSON. When watching, raises Exit unless every task succeeds."""
    if watching:
        follow(batch, at)
    typer.echo(json.dumps(batch.raw) if as_json else report(batch))
    if watching:
        require_success(batch, at)


def follow(batch: Batch, at: ServerConfig, *, as_json: bool = False) -> None:
    """Watch until the batch ends. Ctrl-C prints the command that resumes watching."""
    try:
        watch(batch, as_json=as_json)
    except KeyboardInterrupt:
        again = at.command(f"batch status {batch.id} --watch")
        err.print(f"The batch keeps running. To watch it again: {again}", markup=False)
        raise typer.Exit(EXIT_INTERRUPTED) from None


def require_success(batch: Batch, at: ServerConfig) -> None:
    """Exit with an error unless every task succeeded, and print the commands to try next."""
    if has_succeeded(batch):
        return
    if batch.counts.failed:
        _show_first_error(batch)
        for arguments in (
            f"tasks {batch.id} --status failed",
            f"rerun {batch.id} --failed --watch",
        ):
            err.print(f"  {at.command(f'batch {arguments}')}", style="dim", markup=False)
    raise typer.Exit(EXIT_FAILED)


def _show_first_error(batch: Batch) -> None:
    """The first error is often the reason of all."""
    first = next(iter(batch.tasks(status="failed")), None)
    if first is not None and first.error is not None:
        error = plain(f"{first.error.code}: {first.error.message}")
        err.print(f"task {first.index} failed: {error}", style="red", markup=False)


STANDARD_INPUT: Final = "-"
ARRAY_BYTES_MAX: Final = 64 * 1024 * 1024
"""An array is read into memory at once; lines are streamed and may be any number."""

_LINES: Final = frozenset({".ndjson", ".jsonl"})
_TABLES: Final = frozenset({".csv", ".tsv", ".xls", ".xlsx"})
_GZIP: Final = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class TaskFile:
    """A file's content: ``lines`` to upload unchanged, or the ``tasks`` of an array."""

    lines: Path | None = None
    tasks: list[msgspec.Raw] | None = None


@contextmanager
def task_file(name: str) -> Iterator[TaskFile]:
    """Open a file of tasks. Raises Misconfigured for a format that is not supported."""
    suffix = Path(name).suffix.lower()
    if suffix in _TABLES:
        raise Misconfigured(
            f"{name}: tables are not supported\n"
            "Convert each row to a line of JSON (NDJSON), such as "
            '{"url": "https://example.org/"}.'
        )
    with ExitStack() as closing:
        path = closing.enter_context(_standard_input()) if name == STANDARD_INPUT else Path(name)
        shown = "standard input" if name == STANDARD_INPUT else name
        try:
            found = _parse(path, shown, suffix)
        except OSError as error:
            raise Misconfigured(f"{shown}: {error.strerror}") from error
        yield found


@contextmanager
def _standard_input() -> Iterator[Path]:
    """Standard input copied to a file, so that a broken upload can be retried."""
    if sys.stdin.isatty():
        err.print("Reading tasks, one per line, until Ctrl-D.", style="dim")
    with tempfile.NamedTemporaryFile(prefix="coatcheck-tasks-") as kept:
        shutil.copyfileobj(sys.stdin.buffer, kept)
        kept.flush()
        yield Path(kept.name)


def _parse(path: Path, shown: str, suffix: str) -> TaskFile:
    with path.open("rb") as file:
        start = file.read(4096).lstrip()
        if start.startswith(_GZIP):
            raise Misconfigured(
                f"{shown} is compressed\nDecompress it first: gunzip -c FILE | "
                "coatcheck batch submit - ..."
            )
        if not start.startswith(b"[") or suffix in _LINES:
            return TaskFile(lines=path)
        file.seek(0)
        first = file.readline(ARRAY_BYTES_MAX + 1)
        if _is_json(first) and file.read(4096).strip():
            return TaskFile(lines=path)  # each line an array
        file.seek(0)
        content = file.read(ARRAY_BYTES_MAX + 1)
    if len(content) > ARRAY_BYTES_MAX:
        raise Misconfigured(
            f"{shown} is a JSON array of more than {ARRAY_BYTES_MAX // 1024**2} MiB\n"
            "Convert it to JSON lines, which have no limit: jq -c '.[]' FILE > tasks.ndjson"
        )
    try:
        return TaskFile(tasks=msgspec.json.decode(content, type=list[msgspec.Raw]))
    except msgspec.DecodeError as error:
        raise Misconfigured(
            f"{shown} is not a valid JSON array: {error}\n"
            "If it holds JSON lines, give the file a name that ends in .ndjson."
        ) from error


def _is_json(text: bytes) -> bool:
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return False
    return True


app: Final = typer.Typer(
    name="batch",
    no_args_is_help=True,
    help="Run many tasks as one batch: submit a list, watch it, download the results.",
)

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The batch ID.")]
FileArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="JSON lines or a JSON array; - for standard input.")
]
WatchOption = Annotated[bool, typer.Option("--watch", help="Show progress until the batch ends.")]
RunOption = Annotated[
    str | None,
    typer.Option(help="The ID of an earlier run, or all: each task with its latest result."),
]


def _fields(texts: list[str]) -> dict[str, str]:
    fields = dict(text.partition("=")[::2] for text in texts)
    if not all("=" in text and not text.startswith("=") for text in texts):
        raise Misconfigured("--metadata needs a name and a value, such as --metadata team=search")
    return fields


@app.command()
@on_server
def submit(
    at: ServerConfig,
    file: Annotated[
        str | None,
        typer.Argument(metavar="FILE", help="JSON lines or a JSON array; - for standard input."),
    ] = None,
    *,
    service: Annotated[str, typer.Option(help="The service that runs the tasks.")],
    endpoint: Annotated[
        str, typer.Option(help="The endpoint of the service: a path such as /fetch, or a key.")
    ],
    service_version: Annotated[
        int | None, typer.Option("--service-version", help="Version of the service.")
    ] = None,
    watching: WatchOption = False,
    concurrency: Annotated[
        int | None, typer.Option(help="Maximum number of tasks running at once.")
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(help="Maximum number of tasks started per second; with --rate-key, per key."),
    ] = None,
    rate_key: Annotated[
        str | None, typer.Option(help="The task field that --rate applies to; for a URL, its host.")
    ] = None,
    lane: Annotated[str | None, typer.Option(help="The lane: urgent, standard or bulk.")] = None,
    stays_open: Annotated[
        bool, typer.Option("--open", help="Accept more tasks until the batch is closed.")
    ] = False,
    webhook_url: Annotated[
        str | None, typer.Option(help="URL to notify when the batch ends.")
    ] = None,
    metadata: Annotated[
        list[str] | None,
        typer.Option(metavar="K=V", help="Metadata to store with the batch. Repeatable."),
    ] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(help="Idempotency key: the same key returns the same batch.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Submit a list of tasks and print the ID of the batch.

    Each line is a task: any JSON value, or {"custom_id": ..., "input": ...}.
    With --watch, exit code 1 unless every task succeeds.
    """
    if file is None and not stays_open:
        raise Misconfigured("FILE is missing\nOnly a batch with --open can start without tasks.")
    with at.client() as client:
        with _tasks_of(file) as tasks:
            batch = client.batches.submit(
                service,
                endpoint,
                **tasks,
                version=service_version,
                is_open=stays_open,
                lane=lane,
                concurrency=concurrency,
                rate=rate,
                rate_key=rate_key,
                webhook_url=webhook_url,
                metadata=_fields(metadata) if metadata else None,
                idempotency_key=idempotency_key,
            )
        if batch.mismatch:
            err.print(
                "warning: this idempotency key was used with other input; "
                "showing the batch created then",
                style="yellow",
            )
        if not as_json:
            typer.echo(batch.id)
        if as_json or watching:
            show(batch, at, watching=watching, as_json=as_json)


@app.command()
@on_server
def add(
    at: ServerConfig, batch_id: IdArgument, file: FileArgument, as_json: JsonOption = False
) -> None:
    """Add the tasks of a file to an open batch."""
    with at.client() as client, _tasks_of(file) as tasks:
        _print(client.batches.add(batch_id, **tasks), as_json)


@app.command()
@on_server
def close(
    at: ServerConfig,
    batch_id: IdArgument,
    watching: WatchOption = False,
    as_json: JsonOption = False,
) -> None:
    """Close an open batch: it accepts no more tasks."""
    with at.client() as client:
        show(client.batches.close(batch_id), at, watching=watching, as_json=as_json)


@app.command()
@on_server
def status(
    at: ServerConfig,
    batch_id: IdArgument,
    watching: WatchOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show a batch. With --watch, exit code 1 unless every task succeeds."""
    with at.client() as client:
        show(client.batches.get(batch_id), at, watching=watching, as_json=as_json)


@app.command(name="list")
@on_server
def list_command(
    at: ServerConfig,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of batches.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """List your batches, newest first."""
    with at.client() as client, until_nobody_reads():
        for number, batch in enumerate(client.batches.list_all()):
            if number >= limit:
                return
            typer.echo(json.dumps(batch.raw) if as_json else f"{batch.id}  {summary(batch)}")


@app.command()
@on_server
def tasks(
    at: ServerConfig,
    batch_id: IdArgument,
    task_status: Annotated[
        str | None,
        typer.Option(
            "--status", help="Only tasks that are pending, running, succeeded, failed or cancelled."
        ),
    ] = None,
    run: RunOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the tasks of a batch, one per line."""
    with at.client() as client, until_nobody_reads():
        for task in client.batches.tasks(batch_id, status=task_status, run=run):
            typer.echo(encode(task) if as_json else task_line(task))


@app.command()
@on_server
def rerun(
    at: ServerConfig,
    batch_id: IdArgument,
    failed: Annotated[bool, typer.Option("--failed", help="Only failed tasks.")] = False,
    task_status: Annotated[
        list[str] | None, typer.Option("--status", help="Only tasks with this status. Repeatable.")
    ] = None,
    error_code: Annotated[
        list[str] | None,
        typer.Option(help="Only tasks that failed with this error code. Repeatable."),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(help="Select from this run, or from all: by each task's latest result."),
    ] = None,
    watching: WatchOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run an ended batch again, or some of its tasks, as a new run."""
    if failed and task_status:
        raise Misconfigured(
            "--failed and --status cannot be combined\n--failed is the same as --status failed."
        )
    statuses = ["failed"] if failed else task_status
    with at.client() as client:
        batch = client.batches.rerun(batch_id, status=statuses, error_code=error_code, run=run)
        show(batch, at, watching=watching, as_json=as_json)


@app.command()
@on_server
def export(
    at: ServerConfig,
    batch_id: IdArgument,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="The file to write. Default: ID.zip."),
    ] = None,
    run: RunOption = None,
    as_json: JsonOption = False,
) -> None:
    """Download all results of a batch as a zip of JSON lines, and print the file's name."""
    path = Path(f"{batch_id}.zip") if output is None else output
    if path.is_dir():
        raise Misconfigured(f"{path} is a folder\n-o takes the name of a file.")
    with at.client() as client, _waiting("exporting and downloading the results"):
        client.batches.export(batch_id, path, run=run)
    typer.echo(encode({"id": batch_id, "file": str(path)}) if as_json else str(path))


@app.command()
@on_server
def cancel(at: ServerConfig, batch_id: IdArgument, as_json: JsonOption = False) -> None:
    """Cancel a batch: waiting tasks do not run, running tasks are asked to stop."""
    with at.client() as client:
        _print(client.batches.cancel(batch_id), as_json)


@app.command()
@on_server
def delete(at: ServerConfig, batch_id: IdArgument, as_json: JsonOption = False) -> None:
    """Delete a batch with its tasks, results and exports."""
    with at.client() as client:
        client.batches.delete(batch_id)
    done = {"id": batch_id, "deleted": True}
    typer.echo(encode(done) if as_json else f"Deleted {batch_id}.")


@app.command()
@on_server
def dlq(
    at: ServerConfig,
    redrive: Annotated[
        str | None, typer.Option(metavar="ID", help="Process this list again.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the lists of tasks that could not be processed, or process one again."""
    with at.client() as client, until_nobody_reads():
        if redrive is not None:
            client.batches.redrive(redrive)
            done = {"id": redrive, "redriven": True}
            typer.echo(encode(done) if as_json else f"Processing {redrive} again.")
            return
        for letter in client.batches.dead_letters():
            typer.echo(encode(letter) if as_json else dead_letter_line(letter))


@contextlib.contextmanager
def _tasks_of(name: str | None) -> Iterator[dict[str, Any]]:
    """The client's arguments for the tasks of a file."""
    if name is None:
        yield {}
        return
    with task_file(name) as found, _waiting("uploading the tasks"):
        yield {"file": found.lines, "tasks": found.tasks}


def _print(batch: Batch, as_json: bool) -> None:
    typer.echo(json.dumps(batch.raw) if as_json else summary(batch))


def _waiting(text: str) -> contextlib.AbstractContextManager[object]:
    """Show a spinner on a terminal."""
    return err.status(text) if err.is_terminal else contextlib.nullcontext()
