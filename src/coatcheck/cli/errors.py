"""Turns every error a user can meet into a line and a hint. Tracebacks are for ``--debug``."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Final, ParamSpec

import typer

from coatcheck.cli.console import complain, err
from coatcheck.client.errors import ApiError, AuthenticationError, ConnectionFailed
from coatcheck.domain.errors import (
    BadRequest,
    CoatcheckError,
    DatabaseUnavailable,
    JobNotFound,
    SettingsInvalid,
)
from coatcheck.store.diagnosis import explain
from coatcheck.store.embedded import EmbeddedPostgresError
from coatcheck.telemetry.redaction import redact

Parameters = ParamSpec("Parameters")

EXIT_FAILED: Final = 1
EXIT_MISCONFIGURED: Final = 2
"""Trying again without a change would not help: ``up`` does not restart what ended so."""

DATABASE_HINT: Final = (
    "Is it running, and does COATCHECK_DATABASE_URL name it? `coatcheck doctor` looks closer."
)

DATABASE_URL_HINT: Final = "`coatcheck up` prints the URL of the database that it runs."

JOB_HINT: Final = (
    "An id has 26 characters. Jobs of the organisation `default` are shown, and an ended one until "
    "its time to be kept is over."
)

_MAY_PASS: Final = frozenset({408, 429})

SERVER_HINT: Final = (
    "Is it running, and does COATCHECK_URL name it? Without it, http://127.0.0.1:8080 is asked."
)

REFUSED_KEY_HINT: Final = (
    "Is COATCHECK_API_KEY a key of that server? `coatcheck keys create` makes one."
)

_debug = False


def show_tracebacks() -> None:
    """From now on, let the traceback of an error be seen."""
    global _debug
    _debug = True


class Misconfigured(CoatcheckError):
    """What the command was told cannot work; the second line says what to do."""

    code = "misconfigured"


def reporting_errors(command: Callable[Parameters, None]) -> Callable[Parameters, None]:
    """Wraps a command so that whatever goes wrong in it is said in one line, with a hint."""

    @functools.wraps(command)
    def wrapped(*arguments: Parameters.args, **options: Parameters.kwargs) -> None:
        try:
            command(*arguments, **options)
        except (typer.Exit, typer.Abort, KeyboardInterrupt):
            raise
        except Exception as error:  # noqa: BLE001 - the last stop before the user
            if _wants_traceback():
                err.print_exception()
            problem, hint, code = describe(error)
            complain(problem, hint)
            raise typer.Exit(code) from None

    return wrapped


def describe(error: Exception) -> tuple[str, str, int]:
    """What to say of an error, what to advise, and the exit code."""
    first, _, rest = redact(str(error)).partition("\n")
    match error:
        case SettingsInvalid() if "COATCHECK_" in str(error):
            if "COATCHECK_DATABASE_URL is not set" in first:
                rest = f"{rest}\n{DATABASE_URL_HINT}"
            return first, f"{rest}\nSee docs/reference/settings.md.".strip(), EXIT_MISCONFIGURED
        case SettingsInvalid() | Misconfigured():
            return first, rest, EXIT_MISCONFIGURED
        case DatabaseUnavailable():
            return first, rest or DATABASE_HINT, EXIT_FAILED
        case BadRequest():
            return first, rest, EXIT_MISCONFIGURED
        case JobNotFound():
            return first, rest or JOB_HINT, EXIT_FAILED
        case ApiError():
            return _refusal(error)
        case ConnectionFailed():
            return first, SERVER_HINT, EXIT_FAILED
        case CoatcheckError() | EmbeddedPostgresError():
            return first, rest, EXIT_FAILED
        case ExceptionGroup():
            # Of tasks that ran side by side one failed, and the others were stopped for it.
            return describe(error.exceptions[0])
        case OSError() if error.strerror and error.filename:
            return f"{error.filename}: {error.strerror}", "", EXIT_FAILED
        case _:
            said = explain(error)
            if said is not None:
                return said, DATABASE_HINT, EXIT_FAILED
            hint = "This should not happen. `coatcheck --debug COMMAND` shows the traceback."
            return f"{type(error).__name__}: {first}", hint, EXIT_FAILED


def _refusal(error: ApiError) -> tuple[str, str, int]:
    """What a server has refused. It may give way by itself only where it is busy or broken."""
    issues = [f"{detail.field}: {detail.issue}" for detail in error.details]
    hints = [issue for issue in issues if issue != error.message]
    if isinstance(error, AuthenticationError):
        hints.append(REFUSED_KEY_HINT)
    if error.request_id:
        hints.append(f"The server's log has it as request {error.request_id}.")
    may_pass = error.status >= 500 or error.status in _MAY_PASS
    code = EXIT_FAILED if may_pass else EXIT_MISCONFIGURED
    return redact(f"{error.message} ({error.code})"), redact("\n".join(hints)), code


def _wants_traceback() -> bool:
    return _debug or os.environ.get("COATCHECK_LOG_LEVEL", "").strip().lower() == "debug"
