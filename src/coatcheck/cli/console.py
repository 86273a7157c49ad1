"""How the commands speak to people: what they found on stdout, what went wrong on stderr."""

from __future__ import annotations

import contextlib
from typing import Final

from rich.console import Console

out: Final = Console(soft_wrap=True, highlight=False)
"""Soft-wrapped: a command or a URL that is cut into lines cannot be copied."""

err: Final = Console(stderr=True, soft_wrap=True, highlight=False)


def say(text: str) -> None:
    """One line of progress. Without words if the terminal is gone: the work goes on."""
    with contextlib.suppress(OSError):
        out.print("[dim]·[/dim]", end=" ")
        out.print(text, markup=False)


def complain(problem: str, hint: str = "") -> None:
    """One clear line for what went wrong, and what to do about it."""
    err.print("error:", style="bold red", end=" ")
    err.print(problem, markup=False)
    for line in hint.splitlines():
        err.print(f"  {line}", style="dim", markup=False)
