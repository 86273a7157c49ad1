"""How the commands speak to people: what they found on stdout, what went wrong on stderr."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from rich.console import Console
from rich.table import Table

_PIPE_COLUMNS: Final = 10_000


class NobodyReads(BrokenPipeError):
    """Who was shown something has gone, such as ``head``."""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        # Rich would end the process, from within whatever it is doing.
        raise NobodyReads


out: Final = _Console(soft_wrap=True, highlight=False)
"""Soft-wrapped: a command or a URL that is cut into lines cannot be copied."""

err: Final = _Console(stderr=True, soft_wrap=True, highlight=False)


def show_table(table: Table) -> None:
    """A table as wide as the terminal; in a pipe with each row on a line, however long."""
    if out.is_terminal:
        out.print(table, soft_wrap=False)
    else:
        _Console(width=_PIPE_COLUMNS, highlight=False).print(table)


def say(text: str) -> None:
    """One line of progress. Without words if the terminal is gone: the work goes on."""
    with contextlib.suppress(OSError):
        out.print("[dim]·[/dim]", end=" ")
        out.print(text, markup=False)


def warn(text: str) -> None:
    """One line for what works, and is worth a second thought."""
    with contextlib.suppress(OSError):
        err.print("warning:", style="yellow", end=" ")
        err.print(text, markup=False)


def plain(text: str) -> str:
    """What others have named or said, on one line, whatever is in it."""
    return "".join(c if c.isprintable() else " " for c in text)


@contextlib.contextmanager
def until_nobody_reads() -> Iterator[None]:
    """What is shown may be cut short by its reader, such as ``head``."""
    with contextlib.suppress(BrokenPipeError):
        yield


def complain(problem: str, hint: str = "") -> None:
    """One clear line for what went wrong, and what to do about it."""
    err.print("error:", style="bold red", end=" ")
    err.print(problem, markup=False)
    for line in hint.splitlines():
        err.print(f"  {line}", style="dim", markup=False)
