"""Requests that never came over a socket, for what only looks at their heads."""

from __future__ import annotations

from coatcheck.http.request import Request
from coatcheck.http.response import Message


def a_call(*headers: tuple[str, str], query: str = "", body: bytes = b"") -> Request:
    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/",
        "query_string": query.encode(),
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers],
    }
    return Request(scope, receive, "request-1")
