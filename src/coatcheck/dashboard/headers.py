"""The headers of every page: what a browser may load, run, frame, keep and tell others."""

from __future__ import annotations

from typing import Final

from coatcheck.control.reply import RawHeaders

HTML: Final = (b"content-type", b"text/html; charset=utf-8")
EVENT_STREAM: Final = (b"content-type", b"text/event-stream")
NOT_KEPT: Final = (b"cache-control", b"no-store")

POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    b"media-src 'self' blob:; connect-src 'self'; font-src 'self'; form-action 'self'; "
    b"base-uri 'none'; frame-ancestors 'none'"
)

GUARDS: Final[RawHeaders] = (
    (b"content-security-policy", POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    # Not "no-referrer": a browser would then call the origin of our own forms "null".
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)
