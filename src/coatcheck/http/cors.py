"""CORS: lets pages of other origins call the API from a browser (COATCHECK_CORS_ORIGINS).

The API authenticates by a header that a page must know, never by a cookie, so that no page can do
more than the person who gave it the key. The dashboard has a cookie, so no origin may call it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from http import HTTPStatus
from typing import Final

from coatcheck.http.response import RawHeaders, Response
from coatcheck.http.routing import EVERY_METHOD

ANY_ORIGIN: Final = "*"
_PAGES: Final = "/ui"
_RESPONSE_HEADERS: Final = (
    *("Accept-Ranges", "Content-Disposition", "Content-Range", "ETag", "Idempotency-Mismatch"),
    *("Idempotent-Replayed", "Link", "Location", "Preference-Applied", "RateLimit"),
    *("RateLimit-Limit", "RateLimit-Policy", "RateLimit-Remaining", "RateLimit-Reset"),
    *("Retry-After", "Warning", "X-Job-Id", "X-Request-Id"),
)
"""Response headers that a page may read, on every route. Products add more."""
_REQUEST_HEADERS: Final = (
    *("Accept", "Authorization", "Content-Encoding", "Content-Type", "Idempotency-Key"),
    *("If-None-Match", "Last-Event-ID", "Prefer", "Range", "Traceparent", "X-Api-Key"),
    *("X-Coatcheck-Delay", "X-Idempotency-Key", "X-Request-Id"),
    *("X-State-Webhook-Url", "X-Webhook-Url"),
)
"""Request headers that a page may send, to every route. Products add more."""
_PREFLIGHT_SECONDS: Final = 7_200
"""How long a browser may cache a preflight response; no browser caches it for longer."""


class CrossOrigin:
    """The allowed origins, and the CORS headers of responses to them."""

    def __init__(
        self,
        origins: Collection[str] = (),
        *,
        request_headers: Iterable[str] = (),
        response_headers: Iterable[str] = (),
    ) -> None:
        """``request_headers`` and ``response_headers`` are those of the products' routes."""
        self._any = ANY_ORIGIN in origins
        self._origins = frozenset(origin.encode("ascii") for origin in origins)
        self._allowed = _listed(_REQUEST_HEADERS, request_headers)
        exposed = _listed(_RESPONSE_HEADERS, response_headers)
        self._expose = (b"access-control-expose-headers", exposed)

    @property
    def is_on(self) -> bool:
        return bool(self._origins)

    def headers(self, origin: bytes, path: str) -> RawHeaders:
        """The CORS headers of a response to a page of ``origin``; none if it may not read it."""
        if path == _PAGES or path.startswith(_PAGES + "/"):
            return ()
        if self._any:
            return ((b"access-control-allow-origin", b"*"), self._expose)
        if origin not in self._origins:
            return (_VARY,)
        return ((b"access-control-allow-origin", origin), self._expose, _VARY)

    def preflight(self, asked: bytes | None, allowed: RawHeaders) -> Response:
        """The response to a preflight request. ``asked``: the headers that the page wants to send.
        All are allowed, because no header gives a page more rights."""
        if not any(name == b"access-control-allow-origin" for name, _ in allowed):
            return Response(HTTPStatus.NO_CONTENT, b"", [_VARY_PREFLIGHT])
        return Response(
            HTTPStatus.NO_CONTENT,
            b"",
            [
                (b"access-control-allow-methods", ", ".join(EVERY_METHOD).encode("ascii")),
                (b"access-control-allow-headers", asked or self._allowed),
                (b"access-control-max-age", b"%d" % _PREFLIGHT_SECONDS),
                _VARY_PREFLIGHT,
            ],
        )


def _listed(common: Iterable[str], of_products: Iterable[str]) -> bytes:
    """Names of headers, each once, in alphabetical order."""
    return ", ".join(sorted({*common, *of_products}, key=str.lower)).encode("ascii")


_VARY: Final = (b"vary", b"origin")
_VARY_PREFLIGHT: Final = (b"vary", b"access-control-request-headers")
