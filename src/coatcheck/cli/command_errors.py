"""How a command ends when it fails: one line and a hint on stderr, and an exit code.

Tracebacks are for ``--debug``.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Final, ParamSpec

import typer

from coatcheck.domain.errors import CoatcheckError

Parameters = ParamSpec("Parameters")

EXIT_FAILED: Final = 1
EXIT_MISCONFIGURED: Final = 2
"""A retry without a change cannot help: ``up`` does not restart a process that exits with this."""

_debug = False


def show_tracebacks() -> None:
    """Show tracebacks of errors from now on."""
    global _debug
    _debug = True


class NobodyReads(BrokenPipeError):
    """The reader of our output has closed the pipe, as ``head`` does."""


class Misconfigured(CoatcheckError):
    """The command's options or settings are wrong; the second line says what to do."""

    code = "misconfigured"


def reporting_errors(command: Callable[Parameters, None]) -> Callable[Parameters, None]:
    """Wraps a command so that any error is reported in one line, with a hint."""

    @functools.wraps(command)
    def wrapped(*arguments: Parameters.args, **options: Parameters.kwargs) -> None:
        try:
            command(*arguments, **options)
        except (typer.Exit, typer.Abort, KeyboardInterrupt):
            raise
        except NobodyReads:
            raise typer.Exit(EXIT_FAILED) from None
        except Exception as error:  # noqa: BLE001 - the last stop before the user
            # Slow to import. A server and a worker print nothing but this.
            from coatcheck.cli.console import complain, err
            from coatcheck.cli.error_texts import describe

            if _wants_traceback():
                err.print_exception()
            problem, hint, code = describe(error)
            complain(problem, hint)
            raise typer.Exit(code) from None

    return wrapped


def _wants_traceback() -> bool:
    return _debug or os.environ.get("COATCHECK_LOG_LEVEL", "").strip().lower() == "debug"
