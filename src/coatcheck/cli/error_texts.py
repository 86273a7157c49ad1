"""What to say of an error, what to advise, and how to exit. Imported once there is one."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from coatcheck.cli.errors import EXIT_FAILED, EXIT_MISCONFIGURED, Misconfigured
from coatcheck.client.errors import (
    ApiError,
    AuthenticationError,
    ConnectionFailed,
    UnexpectedAnswer,
)
from coatcheck.domain.errors import (
    BadRequest,
    CoatcheckError,
    DatabaseUnavailable,
    SettingsInvalid,
)
from coatcheck.store.diagnosis import explain
from coatcheck.telemetry.redaction import redact

IS_IT_RUNNING: Final = "Is it running, and does COATCHECK_DATABASE_URL name it?"

DATABASE_HINT: Final = f"{IS_IT_RUNNING} `coatcheck doctor` looks closer."

DATABASE_URL_HINT: Final = "`coatcheck up` prints the URL of the database that it runs."

_MAY_PASS: Final = frozenset({408, 429})

SERVER_HINT: Final = (
    "Is it running? `coatcheck config show` says who names it; "
    "--url or COATCHECK_URL names another."
)

REFUSED_KEY_HINT: Final = (
    "Is COATCHECK_API_KEY a key of that server? `coatcheck keys create` makes one."
)

WRONG_SERVER_HINT: Final = (
    "Does COATCHECK_URL name a Coatcheck server, with nothing after its host and port?"
)

FORBIDDEN_URL_HINT: Final = (
    "`coatcheck listen` brings webhooks to a machine that the server may not call. What it may"
    " call is listed in its COATCHECK_EGRESS_ALLOW."
)

MISSING_SCOPE_HINT: Final = "`coatcheck keys create --scope SCOPE` makes a key that has it."

SERVICES_HINT: Final = "The page Services of the dashboard, at /ui/services, lists what there is."

NOT_FOUND_HINT: Final = (
    "An id is known to its own server and organisation only: `coatcheck config show` says which "
    "those are."
)


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
        case ApiError():
            return _refusal(error)
        case ConnectionFailed():
            return first, SERVER_HINT, EXIT_FAILED
        case UnexpectedAnswer():
            return first, WRONG_SERVER_HINT, EXIT_FAILED
        case CoatcheckError():
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
        hints.append(f"The server's log has it as request {error.request_id}.")
    may_pass = error.status >= HTTPStatus.INTERNAL_SERVER_ERROR or error.status in _MAY_PASS
    code = EXIT_FAILED if may_pass else EXIT_MISCONFIGURED
    return redact(f"{error.message} ({error.code})"), redact("\n".join(hints)), code
