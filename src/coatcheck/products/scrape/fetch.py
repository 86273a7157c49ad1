"""What a fetch is asked for, and what it comes to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final, Literal

import msgspec

from coatcheck.domain.errors import FieldIssue, InvalidInput

URL_CHARACTERS_MAX: Final = 8_192
TIMEOUT_SECONDS: Final = 60.0
TIMEOUT_SECONDS_MAX: Final = 600.0
HEADERS_MAX: Final = 50
HEADERS_CHARACTERS_MAX: Final = 16_384
"""All names and values together."""

BODY_ARTIFACT: Final = "body"

Url = Annotated[str, msgspec.Meta(min_length=1, max_length=URL_CHARACTERS_MAX)]
Method = Literal["GET", "HEAD"]
Headers = Annotated[dict[str, str], msgspec.Meta(max_length=HEADERS_MAX)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=TIMEOUT_SECONDS_MAX)]
Bytes = Annotated[int, msgspec.Meta(ge=1)]

_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_NOT_THE_CALLERS: Final = frozenset(
    {
        # Of the connection, or of a body, which a fetch has none of.
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        # What is unpacked here is asked for here.
        "accept-encoding",
    }
)
_NOT_THE_CALLERS_PREFIX: Final = "proxy-"


@dataclass(frozen=True, slots=True)
class Fetch:
    """One page to fetch. ``headers`` may hold the caller's credentials: never log them."""

    url: str
    method: Method
    headers: list[tuple[str, str]]
    timeout_seconds: float
    bytes_max: int

    def __repr__(self) -> str:
        return f"<Fetch {self.method}>"


class Fetched(msgspec.Struct, frozen=True):
    """The result of a fetch. The body is the job's artifact that ``artifact`` names."""

    url: str
    final_url: str
    status: int
    headers: dict[str, str]
    content_type: str | None
    size: int = msgspec.field(name="bytes")
    sha256: str
    fetched_at: datetime
    elapsed_ms: int
    artifact: str | None
    """None if there was nothing to fetch but headers."""


def read_fetch(
    url: str,
    method: Method,
    headers: Mapping[str, str],
    timeout_seconds: float,
    max_bytes: int | None,
    deployment_bytes_max: int,
) -> Fetch:
    """The fetch that a task asks for. Raises InvalidInput. Its URL is the guard's to judge."""
    issues = [issue for name, value in headers.items() for issue in _issues(name, value)]
    if sum(len(name) + len(value) for name, value in headers.items()) > HEADERS_CHARACTERS_MAX:
        issues.append(FieldIssue("headers", f"have more than {HEADERS_CHARACTERS_MAX} characters"))
    if max_bytes is not None and max_bytes > deployment_bytes_max:
        issues.append(FieldIssue("max_bytes", f"is at most {deployment_bytes_max} here"))
    if issues:
        raise InvalidInput(issues)
    return Fetch(
        # What follows a # is for browsers; no server is ever sent it.
        url=url.partition("#")[0],
        method=method,
        headers=[(name.lower(), value) for name, value in headers.items()],
        timeout_seconds=timeout_seconds,
        bytes_max=deployment_bytes_max if max_bytes is None else max_bytes,
    )


def _issues(name: str, value: str) -> list[FieldIssue]:
    if _HEADER_NAME.fullmatch(name) is None:
        return [FieldIssue("headers", "one has a name that HTTP does not allow")]
    lowered = name.lower()
    if lowered in _NOT_THE_CALLERS or lowered.startswith(_NOT_THE_CALLERS_PREFIX):
        return [FieldIssue(f"headers.{lowered}", "is not the caller's to set")]
    if _HEADER_VALUE.fullmatch(value) is None:
        return [FieldIssue(f"headers.{lowered}", "has a character that HTTP does not allow")]
    return []
