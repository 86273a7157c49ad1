"""What a fetch is asked for, and what it comes to."""

from __future__ import annotations

import asyncio
import hashlib
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Annotated, BinaryIO, Final, Literal, Self

import httpx2
import msgspec

from coatcheck.domain.errors import FieldIssue, InvalidInput
from coatcheck.products.scrape import outcomes

REDIRECTS_MAX: Final = 5

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_FOR_ONE_SITE: Final = frozenset({"authorization", "cookie"})


def next_page(page: str, response: httpx2.Response) -> str | None:
    """The URL that an answer sends us on to; None if it is an end. Raises FailJob."""
    location = response.headers.get("location", "")
    if response.status_code not in _REDIRECTS or not location:
        return None
    try:
        return str(httpx2.URL(page).join(location).copy_with(fragment=None))
    except (httpx2.InvalidURL, ValueError) as error:
        raise outcomes.redirect_invalid() from error


def headers_for(following: str, page: str, headers: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """What of the headers for ``page`` goes to where it led: no credentials to another site."""
    if _origin(following) == _origin(page):
        return headers
    return [(name, value) for name, value in headers if name not in _FOR_ONE_SITE]


def _origin(url: str) -> tuple[str, str, int | None]:
    read = httpx2.URL(url)
    return read.scheme, read.host, read.port


_SHOWN: Final = frozenset(
    {
        "age",
        "cache-control",
        "content-disposition",
        "content-language",
        "content-type",
        "date",
        "etag",
        "expires",
        "last-modified",
        "link",
        "location",
        "server",
        "vary",
        "x-robots-tag",
    }
)
_VALUE_CHARACTERS_MAX: Final = 1_000
_MEDIA_TYPE_CHARACTERS_MAX: Final = 255
_UNKNOWN: Final = "application/octet-stream"


def shown_headers(response: httpx2.Response) -> dict[str, str]:
    """A chosen few, by their names in lower case, none longer than it may be."""
    found: dict[str, str] = {}
    for raw_name, raw_value in response.headers.raw:
        name = raw_name.decode("latin-1").lower()
        if name in _SHOWN:
            value = raw_value.decode("latin-1")
            found[name] = f"{found[name]}, {value}" if name in found else value
    return {name: value[:_VALUE_CHARACTERS_MAX] for name, value in found.items() if value}


def media_type(content_type: str | None) -> str:
    """The content type, if it is one that an artifact can have."""
    found = content_type or ""
    plain = found.isascii() and found.isprintable() and "/" in found[1:-1]
    return found if plain and len(found) <= _MEDIA_TYPE_CHARACTERS_MAX else _UNKNOWN


_HELD_BYTES_MAX: Final = 256 * 1024


class PageBody:
    """A body as it comes in: in memory up to a bound, then in a file without a name.

    Such a file is gone when it is closed, and when the process is killed. A context manager.
    """

    def __init__(self, folder: Path, bytes_max: int) -> None:
        self._folder = folder
        self._bytes_max = bytes_max
        self._held = bytearray()
        self._file: BinaryIO | None = None
        self._digest = hashlib.sha256()
        self.size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    async def add(self, piece: bytes) -> None:
        """Take the next piece. Raises FailJob when there are too many bytes."""
        self.size += len(piece)
        if self.size > self._bytes_max:
            raise outcomes.too_large(self._bytes_max)
        self._digest.update(piece)
        self._held += piece
        if len(self._held) > _HELD_BYTES_MAX:
            await asyncio.to_thread(self._write)

    async def whole(self) -> bytes | BinaryIO:
        """All of it: bytes, or the file, to be read from its beginning."""
        if self._file is None:
            return bytes(self._held)
        await asyncio.to_thread(self._write)
        self._file.seek(0)
        return self._file

    def _write(self) -> None:
        if self._file is None:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 - see __exit__
        self._file.write(self._held)
        self._held.clear()


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
