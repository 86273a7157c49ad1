"""Output for people: results on stdout, warnings and errors on stderr."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from coatcheck.cli.command_errors import NobodyReads

_PIPE_COLUMNS: Final = 10_000


class _Console(Console):
    def on_broken_pipe(self) -> None:
        # Rich would exit the process here; the caller must be able to clean up.
        raise NobodyReads


out: Final = _Console(soft_wrap=True, highlight=False)
"""Soft-wrapped: a command or URL broken across lines cannot be copied."""

err: Final = _Console(stderr=True, soft_wrap=True, highlight=False)


def show_table(table: Table) -> None:
    """Print a table as wide as the terminal. In a pipe each row is one line, however long."""
    if out.is_terminal:
        out.print(table, soft_wrap=False)
    else:
        _Console(width=_PIPE_COLUMNS, highlight=False).print(table)


def say(text: str) -> None:
    """Print one line of progress. A closed terminal is ignored: the work continues."""
    with contextlib.suppress(OSError):
        out.print("[dim]·[/dim]", end=" ")
        out.print(text, markup=False)


def warn(text: str) -> None:
    """Print a warning on one line."""
    with contextlib.suppress(OSError):
        err.print("warning:", style="yellow", end=" ")
        err.print(text, markup=False)


def plain(text: str) -> str:
    """Text of unknown content on one line, without control characters."""
    return "".join(c if c.isprintable() else " " for c in text)


@contextlib.contextmanager
def until_nobody_reads() -> Iterator[None]:
    """Stop quietly when the reader closes the pipe, as ``head`` does."""
    with contextlib.suppress(BrokenPipeError):
        yield


def complain(problem: str, hint: str = "") -> None:
    """Print an error on one line, and below it what to do about it."""
    err.print("error:", style="bold red", end=" ")
    err.print(problem, markup=False)
    for line in hint.splitlines():
        err.print(f"  {line}", style="dim", markup=False)


def own_command() -> str:
    """``coatcheck`` if that is this installation on the PATH, otherwise its full path."""
    script = Path(sys.executable).with_name("coatcheck")
    on_path = shutil.which("coatcheck")
    if on_path is not None and Path(on_path).resolve() == script.resolve():
        return "coatcheck"
    if script.exists():
        return shlex.quote(str(script))
    return f"{shlex.quote(sys.executable)} -m coatcheck.cli"
