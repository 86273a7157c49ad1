"""An HTTP client for one remote's API, which converts failures to our own errors.

A remote is not trusted: responses are bounded in size and time, redirects are not followed, and our
credentials are removed from its error texts, in case it repeats them.
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final, TypeVar
from urllib.parse import quote

import httpx2
import msgspec

from coatcheck.domain.errors import LookUpRefused, UrlForbidden
from coatcheck.egress import charged_to
from coatcheck.egress.urls import parse_retry_after
from coatcheck.remotes.protocol import (
    RemoteError,
    RemoteFailure,
    RemoteFaulty,
    RemoteRefused,
    RemoteStatus,
    RemoteUnclear,
    RemoteUnreachable,
)
from coatcheck.telemetry import traceparents, tracing
from coatcheck.telemetry.logs import REDACTED, redact
from coatcheck.version import __version__

TEXT_CHARACTERS_MAX: Final = 500
_SECRET_CHARACTERS_MIN: Final = 4
"""Shorter secrets would match parts of ordinary words."""
_MESSAGE_FIELDS: Final = ("detail", "error", "message", "msg", "title")
_DEPTH_MAX: Final = 3


def shown(text: str, secrets: Iterable[str] = ()) -> str:
    """``text`` without ``secrets``, on one line, cut to the length of an error message."""
    text = without_secrets(text, secrets)
    # Cut after removing secrets: half a secret would not be found.
    one_line = " ".join(redact(text).split())
    printable = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in one_line)
    if len(printable) <= TEXT_CHARACTERS_MAX:
        return printable
    return printable[: TEXT_CHARACTERS_MAX - 1] + "\N{HORIZONTAL ELLIPSIS}"


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """``text`` without ``secrets``, however a URL or JSON would encode them."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SECRET_CHARACTERS_MIN:
            in_json = msgspec.json.encode(secret).decode()[1:-1]
            for encoded in (secret, quote(secret, safe=""), in_json, in_json.replace("/", "\\/")):
                text = text.replace(encoded, REDACTED)
    return text


def error_text(body: bytes) -> str:
    """The message in a JSON error body; empty if there is none or it is not JSON."""
    try:
        return sentence(msgspec.json.decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""


def sentence(value: Any, depth: int = 0) -> str:
    """The human-readable text in a JSON value: the value itself, or one of its message fields."""
    match value:
        case str():
            return value
        case dict() if depth < _DEPTH_MAX:
            found = (sentence(value.get(name), depth + 1) for name in _MESSAGE_FIELDS)
            return next(filter(None, found), "")
        case [first, *_] if depth < _DEPTH_MAX:
            return sentence(first, depth + 1)
        case _:
            return ""


@dataclass(frozen=True, slots=True)
class RemoteTimeouts:
    """Independent limits, in seconds."""

    connect_seconds: float = 5.0
    call_seconds: float = 30.0
    """For a request and its whole response; for a result, until its headers."""
    silence_seconds: float = 60.0
    """Between two pieces of a result."""
    trickle_seconds: float = 60.0
    """After this time a result must arrive at a minimum rate, however steadily it trickles."""
    bytes_per_second_min: int = 32_768


Decoded = TypeVar("Decoded")

ANSWER_BYTES_MAX: Final = 32 * 1024 * 1024
"""For JSON responses. RunPod and others embed results in them, up to about 20 MB."""
REFUSAL_BYTES_MAX: Final = 64 * 1024
RETRY_AFTER_SECONDS_MAX: Final = 3_600.0

GONE: Final = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.GONE})
_WORTH_ANOTHER_TRY: Final = frozenset(
    {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS}
)
_IDENTITY: Final = ("", "identity")


@dataclass(frozen=True, slots=True)
class RemoteAnswer:
    """A complete response with a success status, or one that the caller accepts."""

    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Address:
    """Where a remote's API is, with our credentials and the client to connect with.

    ``client`` is the guard's, unless the operator configured the URL. ``authorization`` is secret.
    ``org`` is the organisation whose limits the name look-ups count for.
    """

    url: httpx2.URL
    client: httpx2.AsyncClient
    authorization: str | None
    secrets: tuple[str, ...]
    org: str = ""

    def __repr__(self) -> str:
        return f"<Address {self.url.host}>"

    def is_of(self, url: httpx2.URL) -> bool:
        """Whether ``url`` is on this same server."""
        return (url.scheme, url.host, url.port) == (self.url.scheme, self.url.host, self.url.port)


class RemoteCaller:
    """A client for one remote's API."""

    def __init__(self, address: Address, timeouts: RemoteTimeouts) -> None:
        self.address = address
        self.timeouts = timeouts

    async def ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        accept: Collection[int] = (),
        hide: Collection[str] = (),
    ) -> RemoteAnswer:
        """Send a request and read the whole response. Raises RemoteError.

        ``path`` is appended to the API's base URL. ``accept`` are error statuses that the caller
        accepts. ``hide`` are strings besides credentials that no error may show.
        """
        request = self._request(method, path, query, content, headers)
        async with self._within_time(method), self.sent(self.address.client, request) as response:
            if not (response.is_success or response.status_code in accept):
                raise await self.refusal(response, method, hide)
            body = await _whole(response, ANSWER_BYTES_MAX)
        return RemoteAnswer(response.status_code, body)

    async def open(self, path: str, *, query: Mapping[str, str] | None = None) -> httpx2.Response:
        """GET something long: returns at the headers; the caller reads and closes the response."""
        return await self.begin(self.address.client, self._request("GET", path, query, None, None))

    async def begin(self, client: httpx2.AsyncClient, request: httpx2.Request) -> httpx2.Response:
        """Send ``request`` and return its response at the headers, whatever the status."""
        async with self._within_time(request.method):
            return await _send(client, request)

    @asynccontextmanager
    async def sent(
        self, client: httpx2.AsyncClient, request: httpx2.Request
    ) -> AsyncIterator[httpx2.Response]:
        response = await _send(client, request)
        try:
            yield response
        except httpx2.HTTPError as error:
            raise fault_of(error, request.method) from error
        finally:
            await response.aclose()

    async def refusal(
        self, response: httpx2.Response, method: str, hide: Collection[str] = ()
    ) -> RemoteError:
        """The error for an unsuccessful response."""
        status = response.status_code
        text = error_text(await self._refusal_body(response))
        message = f"The remote answered {status}."
        if text:
            message = shown(f"The remote answered {status}: {text}", self.secrets(hide))
        code = RemoteFailure.HTTP_STATUS.format(status=status)
        if status in _WORTH_ANOTHER_TRY or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return RemoteFaulty(
                message,
                code=code,
                perhaps_done=method != "GET" and status not in _WORTH_ANOTHER_TRY,
                retry_after=parse_retry_after(
                    response.headers, datetime.now(UTC), RETRY_AFTER_SECONDS_MAX
                ),
            )
        return RemoteRefused(message, code=code)

    async def _refusal_body(self, response: httpx2.Response) -> bytes:
        """The response's body, or nothing if it does not arrive: the status alone suffices."""
        try:
            async with asyncio.timeout(self.timeouts.call_seconds):
                return await _beginning(response, REFUSAL_BYTES_MAX)
        except (httpx2.HTTPError, TimeoutError):
            return b""

    def secrets(self, hide: Collection[str] = ()) -> tuple[str, ...]:
        return (*self.address.secrets, *hide)

    def shown(self, text: str) -> str:
        """Text from the remote, cleaned for an error message."""
        return shown(text, self.address.secrets)

    def request_for(self, url: httpx2.URL, *, with_credentials: bool) -> httpx2.Request:
        """A GET request for exactly ``url``."""
        headers = {"user-agent": f"coatcheck/{__version__}", "accept-encoding": "identity"}
        if with_credentials and self.address.authorization is not None:
            headers["authorization"] = self.address.authorization
        return self.address.client.build_request(
            "GET",
            url,
            headers=headers,
            timeout=self._timeout(),
            extensions=charged_to(self.address.org),
        )

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        content: bytes | None,
        headers: Mapping[str, str] | None,
    ) -> httpx2.Request:
        all_headers = {
            "user-agent": f"coatcheck/{__version__}",
            "accept-encoding": "identity",
            **(headers or {}),
        }
        if content is not None:
            all_headers["content-type"] = "application/json"
        traceparent = tracing.current()
        if traceparent is not None:
            all_headers[traceparents.HEADER] = traceparent
        if self.address.authorization is not None:
            all_headers["authorization"] = self.address.authorization
        base = str(self.address.url).rstrip("/")
        return self.address.client.build_request(
            method,
            f"{base}{path}",
            params=query,
            content=content,
            headers=all_headers,
            timeout=self._timeout(),
            extensions=charged_to(self.address.org),
        )

    def _timeout(self) -> httpx2.Timeout:
        return httpx2.Timeout(
            self.timeouts.silence_seconds, connect=self.timeouts.connect_seconds, pool=None
        )

    @asynccontextmanager
    async def _within_time(self, method: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self.timeouts.call_seconds):
                yield
        except TimeoutError as error:
            raise timed_out(self.timeouts.call_seconds, method) from error


def decoded(body: bytes, kind: type[Decoded]) -> Decoded:
    """Decode a JSON response. Raises RemoteFaulty if it does not match the remote's API."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise garbage() from None  # the cause would quote the response


def garbage() -> RemoteFaulty:
    return RemoteFaulty("The remote sent an invalid response.", code=RemoteFailure.GARBAGE)


def timed_out(seconds: float, method: str = "GET") -> RemoteFaulty:
    return RemoteFaulty(
        f"The remote took longer than {seconds:g} seconds to answer.",
        code=RemoteFailure.HANGS,
        perhaps_done=method != "GET",
    )


def fault_of(error: httpx2.HTTPError, method: str) -> RemoteError:
    """The error for a transport failure. Its own text is hidden: it may quote the response."""
    match error:
        case httpx2.ConnectError() | httpx2.ConnectTimeout() | httpx2.PoolTimeout():
            return RemoteUnreachable("Cannot connect to the remote.")
        case httpx2.LocalProtocolError() | httpx2.UnsupportedProtocol():
            return RemoteRefused(
                "The request is not valid HTTP.", code=RemoteFailure.REQUEST_INVALID
            )
        case httpx2.TimeoutException():
            return RemoteFaulty(
                "The remote stopped in the middle of a response.",
                code=RemoteFailure.HANGS,
                perhaps_done=method != "GET",
            )
        case _:
            # Not unreachable: retries of a remote that breaks every connection must end, too.
            return RemoteFaulty(
                "The connection to the remote was lost before its response was complete.",
                code=RemoteFailure.BROKE_OFF,
                perhaps_done=method != "GET",
            )


async def _send(client: httpx2.AsyncClient, request: httpx2.Request) -> httpx2.Response:
    try:
        response = await client.send(request, stream=True)
    except UrlForbidden as error:
        raise RemoteRefused(str(error), code=RemoteFailure.URL_FORBIDDEN) from error
    except LookUpRefused as error:
        raise RemoteUnreachable(str(error)) from error
    except httpx2.HTTPError as error:
        raise fault_of(error, request.method) from error
    if response.headers.get("content-encoding", "").lower() not in _IDENTITY:
        await response.aclose()
        raise RemoteFaulty(
            "The remote sent a compressed response that was not requested.",
            code=RemoteFailure.GARBAGE,
        )
    return response


async def _whole(response: httpx2.Response, bytes_max: int) -> bytes:
    body = await _beginning(response, bytes_max + 1)
    if len(body) > bytes_max:
        raise RemoteRefused(
            f"The remote's response has more than {bytes_max} bytes.",
            code=RemoteFailure.ANSWER_TOO_LARGE,
        )
    return body


async def _beginning(response: httpx2.Response, bytes_max: int) -> bytes:
    read = bytearray()
    async for piece in response.aiter_raw():
        read += piece
        if len(read) >= bytes_max:
            break
    return bytes(read[:bytes_max])


AT_ONCE: Final = 8


async def of_each(
    ids: Sequence[str], ask: Callable[[str], Awaitable[RemoteStatus]]
) -> dict[str, RemoteStatus]:
    """The status of each of ``ids``. If one query fails, its id is Unclear and the others go on.

    If the remote is unreachable or hangs repeatedly, all remaining ids become Unclear for the same
    reason, so that a long list does not wait for each of them.
    """
    found: dict[str, RemoteStatus] = {}
    ahead = iter(dict.fromkeys(ids))
    hopeless: RemoteError | None = None
    hangs = 0

    async def work() -> None:
        nonlocal hopeless, hangs
        for remote_id in ahead:
            if hopeless is not None:
                found[remote_id] = RemoteUnclear(hopeless)
                continue
            try:
                found[remote_id] = await ask(remote_id)
            except RemoteUnreachable as error:
                hopeless = error
                found[remote_id] = RemoteUnclear(error)
            except RemoteError as error:
                hangs += isinstance(error, RemoteFaulty) and error.code == RemoteFailure.HANGS
                if hangs >= AT_ONCE:
                    hopeless = error
                found[remote_id] = RemoteUnclear(error)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(len(ids), AT_ONCE)):
            group.create_task(work())
    return found
