"""The input and the result of a fetch, its redirects, and the body while it is being read."""

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
_CREDENTIAL_HEADERS: Final = frozenset({"authorization", "cookie"})


def next_page(page: str, response: httpx2.Response) -> str | None:
    """The URL that a response redirects to; None if it is not a redirect. Raises FailJob."""
    location = response.headers.get("location", "")
    if response.status_code not in _REDIRECTS or not location:
        return None
    try:
        return str(httpx2.URL(page).join(location).copy_with(fragment=None))
    except (httpx2.InvalidURL, ValueError) as error:
        raise outcomes.redirect_invalid() from error


def headers_for(following: str, page: str, headers: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The headers for the page after a redirect. Another site gets no credentials."""
    if _origin(following) == _origin(page):
        return headers
    return [(name, value) for name, value in headers if name not in _CREDENTIAL_HEADERS]


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
    """The response headers in the result: a fixed selection, in lower case, with a length limit."""
    found: dict[str, str] = {}
    for raw_name, raw_value in response.headers.raw:
        name = raw_name.decode("latin-1").lower()
        if name in _SHOWN:
            value = raw_value.decode("latin-1")
            found[name] = f"{found[name]}, {value}" if name in found else value
    return {name: value[:_VALUE_CHARACTERS_MAX] for name, value in found.items() if value}


def media_type(content_type: str | None) -> str:
    """The content type, if an artifact can have it; else ``application/octet-stream``."""
    found = content_type or ""
    plain = found.isascii() and found.isprintable() and "/" in found[1:-1]
    return found if plain and len(found) <= _MEDIA_TYPE_CHARACTERS_MAX else _UNKNOWN


_BUFFER_BYTES_MAX: Final = 256 * 1024


class PageBody:
    """A body while it is being read: in memory up to a limit, then in a temporary file.

    The file has no name, so it disappears when it is closed, also if the process is killed. A
    context manager.
    """

    def __init__(self, folder: Path, bytes_max: int) -> None:
        self._folder = folder
        self._bytes_max = bytes_max
        self._buffer = bytearray()
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
        """Add the next piece. Raises FailJob if the body is too large."""
        self.size += len(piece)
        if self.size > self._bytes_max:
            raise outcomes.too_large(self._bytes_max)
        self._digest.update(piece)
        self._buffer += piece
        if len(self._buffer) > _BUFFER_BYTES_MAX:
            await asyncio.to_thread(self._write)

    async def whole(self) -> bytes | BinaryIO:
        """The whole body: bytes, or the file, positioned at its beginning."""
        if self._file is None:
            return bytes(self._buffer)
        await asyncio.to_thread(self._write)
        self._file.seek(0)
        return self._file

    def _write(self) -> None:
        if self._file is None:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 - see __exit__
        self._file.write(self._buffer)
        self._buffer.clear()


URL_CHARACTERS_MAX: Final = 8_192
TIMEOUT_SECONDS: Final = 60.0
TIMEOUT_SECONDS_MAX: Final = 600.0
HEADERS_MAX: Final = 50
HEADERS_CHARACTERS_MAX: Final = 16_384
"""The limit for all names and values together."""

BODY_ARTIFACT: Final = "body"

Url = Annotated[str, msgspec.Meta(min_length=1, max_length=URL_CHARACTERS_MAX)]
Method = Literal["GET", "HEAD"]
Headers = Annotated[dict[str, str], msgspec.Meta(max_length=HEADERS_MAX)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=TIMEOUT_SECONDS_MAX)]
Bytes = Annotated[int, msgspec.Meta(ge=1)]

_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_RESERVED_HEADERS: Final = frozenset(
    {
        # They describe the connection, or a body, which a fetch does not have.
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        # The executor decompresses the body, so it chooses the encodings.
        "accept-encoding",
    }
)
_RESERVED_PREFIX: Final = "proxy-"


@dataclass(frozen=True, slots=True)
class Fetch:
    """A page to fetch. ``headers`` may have the caller's credentials: never log them."""

    url: str
    method: Method
    headers: list[tuple[str, str]]
    timeout_seconds: float
    bytes_max: int

    def __repr__(self) -> str:
        return f"<Fetch {self.method}>"


class Fetched(msgspec.Struct, frozen=True):
    """The result of a fetch. ``artifact`` is the name of the job's artifact that has the body."""

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
    """None for HEAD, which fetches only headers."""


def read_fetch(
    url: str,
    method: Method,
    headers: Mapping[str, str],
    timeout_seconds: float,
    max_bytes: int | None,
    deployment_bytes_max: int,
) -> Fetch:
    """Check the input of a fetch. Raises InvalidInput. The guard checks the URL later."""
    issues = [issue for name, value in headers.items() for issue in _issues(name, value)]
    if sum(len(name) + len(value) for name, value in headers.items()) > HEADERS_CHARACTERS_MAX:
        issues.append(FieldIssue("headers", f"have more than {HEADERS_CHARACTERS_MAX} characters"))
    if max_bytes is not None and max_bytes > deployment_bytes_max:
        issues.append(FieldIssue("max_bytes", f"is at most {deployment_bytes_max} here"))
    if issues:
        raise InvalidInput(issues)
    return Fetch(
        # The fragment is for browsers; it is never sent to a server.
        url=url.partition("#")[0],
        method=method,
        headers=[(name.lower(), value) for name, value in headers.items()],
        timeout_seconds=timeout_seconds,
        bytes_max=deployment_bytes_max if max_bytes is None else max_bytes,
    )


def _issues(name: str, value: str) -> list[FieldIssue]:
    if _HEADER_NAME.fullmatch(name) is None:
        return [FieldIssue("headers", "one has a name that is not valid in HTTP")]
    lowered = name.lower()
    if lowered in _RESERVED_HEADERS or lowered.startswith(_RESERVED_PREFIX):
        return [FieldIssue(f"headers.{lowered}", "cannot be set by callers")]
    if _HEADER_VALUE.fullmatch(value) is None:
        return [FieldIssue(f"headers.{lowered}", "has a character that is not valid in HTTP")]
    return []
