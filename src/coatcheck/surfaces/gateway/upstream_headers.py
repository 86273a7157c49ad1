"""Which headers go on to an upstream, and which of its own come back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

RawHeader = tuple[bytes, bytes]

_HOP_BY_HOP: Final = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers of one connection, not of the message."""

_NOT_FORWARDED: Final = {
    # Of the request as it reached us.
    "accept-encoding",
    "content-length",
    "expect",
    "forwarded",
    "host",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-proto",
    "x-real-ip",
    # The caller's credentials are for us, and would be stored with the job.
    "authorization",
    "cookie",
    "x-api-key",
    # What the caller says to us about the job.
    "prefer",
    "x-webhook-url",
    "x-state-webhook-url",
    # The job's own is sent. Stored with the call, it would make every retry another payload.
    "x-request-id",
}
_NOT_FORWARDED_PREFIXES: Final = ("x-hsl-", "x-coatcheck-")

_NOT_KEPT: Final = {
    "content-length",
    # They would speak for our own host name, and to every tenant's browser.
    "alt-svc",
    "clear-site-data",
    "nel",
    "report-to",
    "service-worker-allowed",
    "set-cookie",
    "strict-transport-security",
    # The control plane sets its own.
    "date",
    "idempotency-mismatch",
    "idempotent-replayed",
    "preference-applied",
    "ratelimit",
    "ratelimit-limit",
    "ratelimit-policy",
    "ratelimit-remaining",
    "ratelimit-reset",
    "server",
    "x-content-type-options",
    "x-request-id",
}


def forwarded_headers(headers: Iterable[RawHeader]) -> list[tuple[str, str]]:
    """What of a caller's headers an upstream is sent, names in lower case."""
    return [
        (name, value)
        for name, value in _of_the_message(headers)
        if name not in _NOT_FORWARDED and not name.startswith(_NOT_FORWARDED_PREFIXES)
    ]


def kept_headers(headers: Iterable[RawHeader]) -> list[tuple[str, str]]:
    """What of an upstream's headers is kept with its answer, names in lower case."""
    return [(name, value) for name, value in _of_the_message(headers) if name not in _NOT_KEPT]


def _of_the_message(headers: Iterable[RawHeader]) -> list[tuple[str, str]]:
    """The headers without those of the connection, which ``Connection`` may add to."""
    pairs = [
        (name.decode("latin-1").lower(), value.decode("latin-1").strip()) for name, value in headers
    ]
    named = {
        word.strip().lower()
        for name, value in pairs
        if name == "connection"
        for word in value.split(",")
    }
    return [(name, value) for name, value in pairs if name not in _HOP_BY_HOP and name not in named]
