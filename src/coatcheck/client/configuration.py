"""Defaults for the client from environment variables."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Final

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


URL_VARIABLE: Final = "COATCHECK_URL"
TOKEN_VARIABLE: Final = "COATCHECK_API_KEY"  # noqa: S105 - a variable's name
DEFAULT_URL: Final = "http://127.0.0.1:8080"


def base_url_or_default(given: str | None) -> str:
    return given or os.environ.get(URL_VARIABLE) or DEFAULT_URL


def token_or_default(given: str | None) -> str | None:
    """The given token, else the environment's; an empty one counts as none."""
    return (os.environ.get(TOKEN_VARIABLE) if given is None else given) or None
