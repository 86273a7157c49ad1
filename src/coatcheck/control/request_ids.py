"""Every request has an id: the caller's ``X-Request-Id`` if it is fit, else a fresh ULID.

It is echoed, put into every log line and problem, and kept with the jobs the request creates.
"""

from __future__ import annotations

import logging
import re
import time
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coatcheck.domain import ids
from coatcheck.telemetry import context, metrics

_log = logging.getLogger(__name__)

HEADER: Final = "X-Request-Id"

# Printable, no spaces: what can neither break a log line nor a header.
_FIT: Final = re.compile(r"[!-~]{1,128}")
_NO_ROUTE: Final = "none"


class RequestIds:
    """Pure ASGI: sets the id for whatever runs inside, and counts the answers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(HEADER, "")
        request_id = given if _FIT.fullmatch(given) else ids.to_text(ids.new_id())
        status = 0
        began = time.monotonic()

        async def echoing_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[HEADER] = request_id
            await send(message)

        token = context.request_id.set(request_id)
        try:
            await self._app(scope, receive, echoing_send)
        finally:
            route = getattr(scope.get("route"), "path", _NO_ROUTE)
            metrics.record_request(_known(scope["method"]), route, status)
            _log.debug(
                "%s %s",
                scope["method"],
                scope["path"],
                extra={"status": status, "seconds": round(time.monotonic() - began, 6)},
            )
            context.request_id.reset(token)


def _known(method: str) -> str:
    """Callers may make methods up; a metric's labels must not grow with them."""
    return method if method in {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"} else "other"
