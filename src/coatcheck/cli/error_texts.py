"""Texts, hints and exit codes of errors. Imported only when an error occurs."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from coatcheck.cli.command_errors import EXIT_FAILED, EXIT_MISCONFIGURED, Misconfigured
from coatcheck.client.errors import (
    ApiError,
    AuthenticationError,
    ConnectionFailed,
    UnexpectedAnswer,
)
from coatcheck.db.diagnosis import explain
from coatcheck.domain.errors import BadRequest, CoatcheckError, DatabaseUnavailable, SettingsInvalid
from coatcheck.telemetry.logs import redact

IS_IT_RUNNING: Final = "Is PostgreSQL running, and is COATCHECK_DATABASE_URL correct?"

DATABASE_HINT: Final = f"{IS_IT_RUNNING} Run `coatcheck doctor` for details."

DATABASE_URL_HINT: Final = "`coatcheck up` prints the URL of its database."

_MAY_PASS: Final = frozenset({408, 429})

SERVER_HINT: Final = (
    "Is it running? Run `coatcheck config show` to see where the address is set. "
    "Use --url or COATCHECK_URL for another server."
)

REFUSED_KEY_HINT: Final = (
    "Is COATCHECK_API_KEY a key of this server? Run `coatcheck keys create` to create one."
)

WRONG_SERVER_HINT: Final = "Is COATCHECK_URL the address of a Coatcheck server, without a path?"

FORBIDDEN_URL_HINT: Final = (
    "Use `coatcheck listen` to forward webhooks to a machine that the server may not call. "
    "COATCHECK_EGRESS_ALLOW on the server lists the hosts it may call."
)

MISSING_SCOPE_HINT: Final = (
    "Run `coatcheck keys create --scope SCOPE` to create a key with this scope."
)

SERVICES_HINT: Final = "The dashboard lists the services at /ui/services."

NOT_FOUND_HINT: Final = (
    "IDs belong to one server and organisation: run `coatcheck config show` to see which you use."
)


def describe(error: Exception) -> tuple[str, str, int]:
    """The text, hint and exit code of an error."""
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
        case ApiError():
            return _refusal(error)
        case ConnectionFailed():
            return first, SERVER_HINT, EXIT_FAILED
        case UnexpectedAnswer():
            return first, WRONG_SERVER_HINT, EXIT_FAILED
        case CoatcheckError():
            return first, rest, EXIT_FAILED
        case ExceptionGroup():
            # One of several concurrent tasks failed, and the others were cancelled because of it.
            return describe(error.exceptions[0])
        case OSError() if error.strerror and error.filename:
            return f"{error.filename}: {error.strerror}", "", EXIT_FAILED
        case _:
            explanation = explain(error)
            if explanation is not None:
                return explanation, DATABASE_HINT, EXIT_FAILED
            hint = "This is a bug. Run `coatcheck --debug COMMAND` to see the traceback."
            return f"{type(error).__name__}: {first}", hint, EXIT_FAILED


def _refusal(error: ApiError) -> tuple[str, str, int]:
    """The text of a server's error response. Only busy or failing servers are worth a retry."""
    issues = [f"{detail.field}: {detail.issue}" for detail in error.details]
    hints = [issue for issue in issues if issue != error.message]
    if isinstance(error, AuthenticationError):
        hints.append(REFUSED_KEY_HINT)
    elif error.code == "http_404" or error.message.startswith("Nothing is served"):
        hints.append(WRONG_SERVER_HINT)
    elif error.code == "missing_scope":
        hints.append(MISSING_SCOPE_HINT)
    elif error.code == "url_forbidden" and "not public" in error.message:
        hints.append(FORBIDDEN_URL_HINT)
    elif error.message.startswith("There is no such service"):
        hints.append(SERVICES_HINT)
    elif error.status == HTTPStatus.NOT_FOUND and error.message.startswith("There is no"):
        hints.append(NOT_FOUND_HINT)
    elif error.request_id and error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        hints.append(f"See the server's log for request {error.request_id}.")
    may_pass = error.status >= HTTPStatus.INTERNAL_SERVER_ERROR or error.status in _MAY_PASS
    code = EXIT_FAILED if may_pass else EXIT_MISCONFIGURED
    return redact(f"{error.message} ({error.code})"), redact("\n".join(hints)), code
