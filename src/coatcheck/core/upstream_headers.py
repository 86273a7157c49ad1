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
    "content-encoding",  # it is inflated by then
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

_KEPT: Final = frozenset(
    {
        # What the body is. It cannot be read without these.
        "content-type",
        "content-encoding",
        "content-language",
        "content-range",
        # Whether it is whole.
        "content-digest",
        "repr-digest",
        # What a download is called. A browser saves it then, and runs nothing.
        "content-disposition",
        # Which state of a thing this is, for a caller's own `If-Match`. They make nothing fresh.
        "etag",
        "last-modified",
        # Where what was made is, and when to ask for it. With a 2xx nobody follows these unasked.
        "location",
        "retry-after",
    }
)
"""The headers of an upstream that its caller gets; no other is. An upstream is a tenant's, and
speaks under our host name: whatever a proxy before us acts on (X-Accel-Redirect and X-Sendfile have
it serve a file of its own; Cache-Control and Vary, keep the answer for others), or a browser does
for our whole origin (Set-Cookie, Clear-Site-Data, Access-Control-Allow-Origin, Link, Refresh), is
not the upstream's to say. What such names there are depends on who stands before us, so they are
not listed: what is harmless is. For the same reason no tenant can add to the list."""


_LISTS: Final = frozenset({"content-encoding", "content-language", "content-digest", "repr-digest"})
"""Those of them that may come several times: together they are one list."""


def forwarded_headers(headers: Iterable[RawHeader]) -> list[tuple[str, str]]:
    """What of a caller's headers an upstream is sent, names in lower case."""
    return [
        (name, value)
        for name, value in _of_the_message(headers)
        if name not in _NOT_FORWARDED and not name.startswith(_NOT_FORWARDED_PREFIXES)
    ]


def kept_headers(headers: Iterable[RawHeader]) -> list[tuple[str, str]]:
    """What of an upstream's headers is kept with its answer, names in lower case, each once."""
    kept: dict[str, str] = {}
    for name, value in _of_the_message(headers):
        if name in kept and name in _LISTS:
            kept[name] = f"{kept[name]}, {value}"
        elif name in _KEPT:
            kept.setdefault(name, value)
    return list(kept.items())


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
