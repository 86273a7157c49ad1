"""The caller's API key or token: sent with every request, and never shown."""

from __future__ import annotations

from collections.abc import Generator

import httpx2


class Bearer(httpx2.Auth):
    """Adds ``Authorization: Bearer ...``, or nothing if there is no token."""

    def __init__(self, token: str | None) -> None:
        if token is not None and (
            not token or not token.isascii() or not token.isprintable() or " " in token
        ):
            raise ValueError("the token must be printable ASCII without spaces")
        self._token = token

    def __repr__(self) -> str:
        return f"Bearer({'none' if self._token is None else '***'})"

    def auth_flow(
        self, request: httpx2.Request
    ) -> Generator[httpx2.Request, httpx2.Response, None]:
        if self._token is not None:
            request.headers["Authorization"] = f"Bearer {self._token}"
        yield request
