"""Structured logging to stderr: one JSON object per line, or coloured text on a terminal.

Modules log as usual (``logging.getLogger(__name__)``); ``extra={...}`` becomes fields of the line.

It redacts secrets and customers' values from text that people will read:
URLs contain passwords, and PostgreSQL quotes whole rows in the DETAIL of a constraint error. Both
end up in exception texts, so every log line is redacted here.
"""

from __future__ import annotations

import logging
import re
import sys
from datetime import UTC, datetime
from functools import lru_cache
from typing import IO, Any, Final, Literal

import msgspec

from coatcheck.domain import ids
from coatcheck.telemetry import context
from coatcheck.telemetry.traceparents import trace_id_of

REDACTED: Final = "***"

_URL_CREDENTIALS: Final = re.compile(
    # A database URL up to its last @: people forget to escape a slash in a password.
    r"(?P<scheme>postgres(?:ql)?://)[^\s'\"]*@|(?P<other>[a-z][a-z0-9+.-]*://)[^/\s?#'\"]*@",
    re.IGNORECASE,
)
_SECRET_PARAMETERS: Final = re.compile(
    r"(?P<name>[?&](?:[\w.-]*(?:password|passwd|secret|token|signature|credential|api[_-]?key"
    r"|access[_-]?key(?:[_-]?id)?)|sig|key)=)[^&#\s'\"]+",
    re.IGNORECASE,
)
_POSTGRES_DETAIL: Final = re.compile(
    r"(?P<label>\bDETAIL:)\s.*?(?=\n(?:HINT|CONTEXT):|\n\n|\nTraceback|\Z)", re.DOTALL
)
_QUERY_ARGUMENT: Final = re.compile(
    r"(?P<label>invalid input for query argument \$\d+[^:\n]*: ).*(?= \()", re.DOTALL
)


def redact(text: str) -> str:
    """``text`` without credentials in URLs and without values quoted by database errors."""
    # Most lines contain none of these, and cost only three substring searches.
    if "://" in text:
        text = _URL_CREDENTIALS.sub(rf"\g<scheme>\g<other>{REDACTED}@", text)
        text = _SECRET_PARAMETERS.sub(rf"\g<name>{REDACTED}", text)
    if "DETAIL:" in text:
        text = _POSTGRES_DETAIL.sub(rf"\g<label> {REDACTED}", text)
    if "query argument" in text:
        text = _QUERY_ARGUMENT.sub(rf"\g<label>{REDACTED}", text)
    return text


LogFormat = Literal["auto", "json", "pretty"]

_STANDARD_ATTRIBUTES: Final = frozenset(vars(logging.LogRecord("", 0, "", 0, "", None, None))) | {
    "message",
    "asctime",
    "taskName",
    "color_message",
}

_QUIET_LOGGERS: Final = {
    # They log full URLs, including query strings, at INFO.
    "httpx2": logging.WARNING,
    "httpcore2": logging.WARNING,
    # Its INFO lines repeat what our own say.
    "uvicorn": logging.WARNING,
    # At DEBUG it only names the selector it uses.
    "asyncio": logging.WARNING,
    # It warns of each malformed form, quoting it; the caller gets an error that says what is wrong.
    "python_multipart": logging.CRITICAL,
}

_COLOURS: Final = {
    logging.DEBUG: "\x1b[2m",
    logging.INFO: "\x1b[32m",
    logging.WARNING: "\x1b[33m",
    logging.ERROR: "\x1b[31m",
    logging.CRITICAL: "\x1b[1;31m",
}
_DIM: Final = "\x1b[2m"
_RESET: Final = "\x1b[0m"


def configure_logging(
    level: str = "info", log_format: LogFormat = "auto", stream: IO[str] | None = None
) -> logging.StreamHandler[IO[str]]:
    """Send every log line of this process to ``stream`` (stderr). Call it once, at startup.

    Returns the handler that writes them.
    """
    stream = sys.stderr if stream is None else stream
    pretty = stream.isatty() if log_format == "auto" else log_format == "pretty"
    handler = logging.StreamHandler(stream)
    handler.setFormatter(PrettyFormatter(colour=stream.isatty()) if pretty else JsonFormatter())
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    for name, quiet_level in _QUIET_LOGGERS.items():
        logging.getLogger(name).setLevel(max(quiet_level, root.level))
    logging.captureWarnings(capture=True)
    return handler


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, message, request_id, job_id and the extras;
    inside a trace also its id."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": rfc3339(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redact(record.getMessage()),
            **_context_fields(),
            **_extra_fields(record),
        }
        trace = _trace(self, record)
        if trace is not None:
            line["exception"] = trace
        return _encode(line)


class PrettyFormatter(logging.Formatter):
    """For people: time, level, message, then the fields as ``name=value``."""

    def __init__(self, *, colour: bool) -> None:
        super().__init__()
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            **{name: value for name, value in _context_fields().items() if value is not None},
            **_extra_fields(record),
        }
        time = datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S")
        text = "  ".join(
            [
                self._paint(_DIM, time),
                self._paint(_COLOURS.get(record.levelno, ""), f"{record.levelname.lower():<8}"),
                redact(record.getMessage()),
                *(self._paint(_DIM, f"{name}={value}") for name, value in fields.items()),
            ]
        )
        trace = _trace(self, record)
        return text if trace is None else f"{text}\n{trace}"

    def _paint(self, colour: str, text: str) -> str:
        return f"{colour}{text}{_RESET}" if self._colour else text


def _context_fields() -> dict[str, object]:
    job_id = context.job_id.get()
    fields: dict[str, object] = {
        "request_id": context.request_id.get(),
        "job_id": None if job_id is None else ids.to_text(job_id),
    }
    traceparent = context.traceparent.get()
    if traceparent is not None:
        fields["trace_id"] = trace_id_of(traceparent)
    return fields


def _extra_fields(record: logging.LogRecord) -> dict[str, object]:
    return {
        name: _shown(value)
        for name, value in vars(record).items()
        if name not in _STANDARD_ATTRIBUTES
    }


def _shown(value: object) -> object:
    match value:
        case str():
            return redact(value)
        case bytes() | bytearray() | memoryview():
            # Bytes are payloads, results or chunks: a log may say only their size.
            return f"<{len(value)} bytes>"
        case _:
            return value


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str | None:
    if record.exc_info and record.exc_info[0] is not None:
        return redact(formatter.formatException(record.exc_info))
    if record.stack_info:
        return redact(formatter.formatStack(record.stack_info))
    return None


@lru_cache(maxsize=16)  # lines written together often have the same time
def rfc3339(timestamp: float) -> str:
    """A timestamp in the format of every log line."""
    moment = datetime.fromtimestamp(timestamp, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _encode(line: dict[str, object]) -> str:
    try:
        return msgspec.json.encode(line, enc_hook=_as_text).decode()
    except UnicodeEncodeError:
        # A lone surrogate, as in the name of a file that is not UTF-8.
        return msgspec.json.encode(_escaped(line), enc_hook=_as_text).decode()


def _escaped(line: dict[str, object]) -> dict[str, object]:
    return {
        name: _as_text(value).encode(errors="backslashreplace").decode()
        for name, value in line.items()
    }


def _as_text(value: Any) -> str:
    # A value of a type that JSON lacks must not lose the line.
    return redact(str(value))
