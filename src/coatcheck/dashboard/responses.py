"""What pages answer with: security headers, downloads, and events that replace parts of a page."""

from __future__ import annotations

import re
import secrets
from http import HTTPStatus
from typing import Final

from coatcheck.http.response import SANDBOXED, RawHeaders, Response, raw_header

HTML: Final = (b"content-type", b"text/html; charset=utf-8")
EVENT_STREAM: Final = (b"content-type", b"text/event-stream")
NO_STORE: Final = (b"cache-control", b"no-store")

_NONCE_BYTES: Final = 16
_POLICY: Final = (
    "default-src 'none'; script-src {code}; style-src {code}; img-src 'self' data: blob:; "
    "media-src 'self' blob:; connect-src 'self'; font-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)

_ALWAYS: Final[RawHeaders] = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    # Not "no-referrer": a browser would then call the origin of our own forms "null".
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)


def new_nonce() -> str:
    """A nonce that marks the scripts and styles of one page.

    ``'self'`` is not enough: this origin also serves tenants' uploads and their upstreams'
    responses, and a page must run none of those.
    """
    return secrets.token_urlsafe(_NONCE_BYTES)


def policy(nonce: str | None = None) -> str:
    """The Content-Security-Policy of a page with this nonce; None allows no script at all."""
    return _POLICY.format(code="'none'" if nonce is None else f"'nonce-{nonce}'")


def guards(nonce: str) -> RawHeaders:
    """The security headers of a page whose scripts and styles carry this nonce."""
    return ((b"content-security-policy", policy(nonce).encode()), *_ALWAYS)


GUARDS: Final[RawHeaders] = ((b"content-security-policy", policy().encode()), *_ALWAYS)
"""The security headers of a response that is not a whole page: a fragment, stream or redirect."""


HARMLESS: Final[RawHeaders] = (
    *SANDBOXED,
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"private, no-store"),
)
"""For content that is not our own page: nothing in it runs, even if a browser shows it."""

_NOT_PLAIN: Final = re.compile(r"[^A-Za-z0-9._-]+")


def download(body: bytes, name: str, media_type: str) -> Response:
    """``body`` as an attachment called ``name``; unusual characters become underscores."""
    headers = [
        raw_header("content-type", media_type),
        raw_header("content-disposition", f'attachment; filename="{_NOT_PLAIN.sub("_", name)}"'),
        *HARMLESS,
    ]
    return Response(HTTPStatus.OK, body, headers)


KEEP_ALIVE: Final = b": still here\n\n"


def event(name: str, text: str) -> bytes:
    """``text``, usually HTML, for the elements with ``sse-swap="<name>"``."""
    lines = "".join(f"data: {line}\n" for line in text.splitlines() or [""])
    return f"event: {name}\n{lines}\n".encode()


RELOAD: Final = event("gone", "")
"""Makes the page reload, because its session ended or changed."""
