"""The client's address and credential, and the headers of its requests."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from typing import Final

import httpx2

from coatcheck.domain.ids import new_id, to_text
from coatcheck.domain.limits import IDEMPOTENCY_KEY_CHARACTERS_MAX

WAIT_SECONDS_MAX: Final = 60.0
"""The longest time that the server holds an answer."""

Headers = list[tuple[bytes, bytes]]

JSON_HEADERS: Final[Headers] = [(b"content-type", b"application/json")]


def submission_headers(
    *,
    method: str,
    lane: str | None,
    idempotency_key: str | None,
    wait: float | None,
    given: Mapping[str, str] | None,
    has_body: bool,
    delay: float | None = None,
) -> Headers:
    """The headers of a submission; those ``given`` by the caller take precedence.

    Without a key from the caller a new one is used, so that each try of this submission finds the
    same job.
    """
    headers = {"content-type": "application/json"} if has_body else {}
    headers |= {name.lower(): value for name, value in (given or {}).items()}
    if lane is not None:
        headers["x-hsl-lane"] = lane
    if method != "POST":
        headers["x-hsl-target-method"] = method
    if delay is not None:
        headers["x-coatcheck-delay"] = plain_seconds(delay)
    if wait is not None:
        held = f"wait={seconds(wait)}"
        headers["prefer"] = f"{held}, {headers['prefer']}" if "prefer" in headers else held
    if idempotency_key is None and not _names_a_key(headers):
        idempotency_key = to_text(new_id())
    if idempotency_key is not None:
        headers["idempotency-key"] = key_header(idempotency_key)
    for name, value in headers.items():
        if not value.isprintable():
            raise ValueError(f"the header {name} has characters that a header cannot contain")
    return [(name.encode("ascii"), value.encode()) for name, value in headers.items()]


def key_header(key: str) -> str:
    """An idempotency key as a header value: bare if possible, else a quoted string."""
    if not 1 <= len(key) <= IDEMPOTENCY_KEY_CHARACTERS_MAX:
        raise ValueError(
            f"an idempotency key must have 1 to {IDEMPOTENCY_KEY_CHARACTERS_MAX} characters"
        )
    if not key.isprintable():
        raise ValueError("an idempotency key must be printable text")
    if key.startswith('"') or key != key.strip():
        escaped = key.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return key


def seconds(wait: float) -> str:
    """A number of seconds in the format of ``wait``."""
    if not 0 <= wait <= WAIT_SECONDS_MAX:
        raise ValueError(f"wait must be 0 to {WAIT_SECONDS_MAX:g} seconds")
    return plain_seconds(wait)


def plain_seconds(number: float) -> str:
    """A number of seconds in the format of headers: to the millisecond, without an exponent."""
    return f"{number:.3f}".rstrip("0").rstrip(".")


def _names_a_key(headers: Mapping[str, str]) -> bool:
    return "idempotency-key" in headers or "x-idempotency-key" in headers


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
