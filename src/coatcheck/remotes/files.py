"""Reads results: a long response, a file that a remote names by URL, or bytes already received.

A URL in a response comes from the remote, not from the operator. On the remote's own server it is
requested like its API; anywhere else the egress guard decides, and no credentials are sent.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import AsyncGenerator, Mapping
from typing import Final
from urllib.parse import unquote_to_bytes

import httpx2

from coatcheck.domain.errors import UrlForbidden
from coatcheck.domain.limits import ARTIFACT_BYTES_MAX
from coatcheck.egress.urls import read_target
from coatcheck.remotes.caller import GONE, RemoteCaller, RemoteTimeouts, fault_of
from coatcheck.remotes.protocol import RemoteFailure, RemoteFaulty, RemoteRefused, RemoteResult

BINARY: Final = "application/octet-stream"
JSON: Final = "application/json"
DURATION: Final = "duration_seconds"
_DURATION_HEADER: Final = "x-duration-seconds"
_FORBIDDEN: Final = 403
_URL_CHARACTERS_MAX: Final = 8_192
"""Signed URLs are long."""
_MEDIA_TYPE_CHARACTERS_MAX: Final = 255
_REDIRECTS_MAX: Final = 3
_PIECE_BYTES: Final = 256 * 1024


class Files:
    """Downloads the results of one remote."""

    def __init__(self, caller: RemoteCaller, guarded: httpx2.AsyncClient) -> None:
        self._caller = caller
        self._guarded = guarded

    async def answer(
        self, path: str, query: Mapping[str, str], media_type: str | None
    ) -> RemoteResult:
        """The response to a GET on the remote's API, as a result. It may redirect to a file."""
        response = await self._caller.open(path, query=query)
        location = await _redirected(response)
        if location is not None:
            return await self._fetch(location, media_type, {}, _REDIRECTS_MAX - 1)
        return await self._checked(response, media_type, {})

    async def url(
        self, url: str, media_type: str | None, metadata: Mapping[str, float]
    ) -> RemoteResult:
        """A file by its URL, of any length."""
        return await self._fetch(_read_url(url), media_type, metadata, _REDIRECTS_MAX)

    async def _fetch(
        self,
        url: httpx2.URL,
        media_type: str | None,
        metadata: Mapping[str, float],
        redirects_max: int,
    ) -> RemoteResult:
        for _ in range(redirects_max + 1):
            own = self._caller.address.is_of(url)
            client = self._caller.address.client if own else self._guarded
            response = await self._caller.begin(
                client, self._caller.request_for(url, with_credentials=own)
            )
            location = await _redirected(response)
            if location is None:
                return await self._checked(response, media_type, metadata)
            url = location
        raise RemoteRefused(
            f"The result was not reached after {_REDIRECTS_MAX} redirects.",
            code=RemoteFailure.RESULT_REDIRECTS,
        )

    async def _checked(
        self, response: httpx2.Response, media_type: str | None, metadata: Mapping[str, float]
    ) -> RemoteResult:
        if not response.is_success:
            try:
                if response.status_code in GONE or response.status_code == _FORBIDDEN:
                    # Expired signed URLs answer 403 rather than 404.
                    raise result_missing()
                raise await self._caller.refusal(response, "GET")
            finally:
                await response.aclose()
        length = _length(response)
        if length is not None and length > ARTIFACT_BYTES_MAX:
            await response.aclose()
            raise _too_large()
        return RemoteResult(
            _pieces(response, self._caller.timeouts),
            media_type=media_type or _media_type(response),
            length=length,
            metadata={**metadata, **_duration(response)},
            close=response.aclose,
        )


def held(
    content: bytes, media_type: str, metadata: Mapping[str, float] | None = None
) -> RemoteResult:
    """A result whose bytes came with the response."""

    async def pieces() -> AsyncGenerator[bytes, None]:
        view = memoryview(content)
        for start in range(0, len(view), _PIECE_BYTES):
            yield bytes(view[start : start + _PIECE_BYTES])

    return RemoteResult(pieces(), media_type=media_type, length=len(content), metadata=metadata)


def is_url(text: str) -> bool:
    return text[:8].lower().startswith(("https://", "http://"))


def is_data_url(text: str) -> bool:
    return text[:5].lower() == "data:"


def from_data_url(text: str, media_type: str | None, metadata: Mapping[str, float]) -> RemoteResult:
    """A file encoded in its URL (RFC 2397)."""
    head, comma, data = text[len("data:") :].partition(",")
    if not comma:
        raise _unreadable()
    named, *parameters = head.split(";")
    content = from_base64(data) if "base64" in parameters else unquote_to_bytes(data)
    return held(content, media_type or named or BINARY, metadata)


def from_base64(text: str) -> bytes:
    """Decode base64. Raises RemoteRefused if it is invalid."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _unreadable() from error


def result_missing() -> RemoteFaulty:
    """The result existed but is gone: only running the work again can help."""
    return RemoteFaulty(
        "The remote no longer has the result.", code=RemoteFailure.RESULT_GONE, perhaps_done=False
    )


async def _pieces(
    response: httpx2.Response, timeouts: RemoteTimeouts
) -> AsyncGenerator[bytes, None]:
    """The pieces of a response, as long as they come fast enough. Only the time that we wait for
    the remote counts, not the time that the consumer takes."""
    loop = asyncio.get_running_loop()
    read, waited = 0, 0.0
    try:
        asked_at = loop.time()
        async for piece in response.aiter_raw():
            waited += loop.time() - asked_at
            read += len(piece)
            if read > ARTIFACT_BYTES_MAX:
                raise _too_large()
            if read < (waited - timeouts.trickle_seconds) * timeouts.bytes_per_second_min:
                raise _too_slow()
            yield piece
            asked_at = loop.time()
    except httpx2.HTTPError as error:
        raise fault_of(error, "GET") from error
    finally:
        await response.aclose()


def _too_slow() -> RemoteFaulty:
    return RemoteFaulty("The result arrives too slowly.", code=RemoteFailure.RESULT_TOO_SLOW)


async def _redirected(response: httpx2.Response) -> httpx2.URL | None:
    """The redirect target of the response, if it has one."""
    if not response.has_redirect_location:
        return None
    await response.aclose()
    try:
        joined = response.request.url.join(response.headers["location"])
    except httpx2.InvalidURL as error:
        raise RemoteRefused(
            "The result redirects to an invalid URL.", code=RemoteFailure.RESULT_REDIRECTS
        ) from error
    return _read_url(str(joined))


def _read_url(url: str) -> httpx2.URL:
    try:
        read_target(url, _URL_CHARACTERS_MAX)
    except UrlForbidden as error:
        raise RemoteRefused(
            f"The result cannot be fetched: {error}", code=RemoteFailure.URL_FORBIDDEN
        ) from error
    return httpx2.URL(url)


def _length(response: httpx2.Response) -> int | None:
    value = response.headers.get("content-length", "")
    return int(value) if value.isascii() and value.isdigit() else None


def _media_type(response: httpx2.Response) -> str:
    value: str = response.headers.get("content-type", "").strip()
    if not value or len(value) > _MEDIA_TYPE_CHARACTERS_MAX or not value.isprintable():
        return BINARY
    return value


def _duration(response: httpx2.Response) -> dict[str, float]:
    try:
        seconds = float(response.headers.get(_DURATION_HEADER, ""))
    except ValueError:
        return {}
    return {DURATION: seconds} if 0 <= seconds < float("inf") else {}


def _too_large() -> RemoteRefused:
    return RemoteRefused(
        f"The result has more than {ARTIFACT_BYTES_MAX} bytes.", code=RemoteFailure.RESULT_TOO_LARGE
    )


def _unreadable() -> RemoteRefused:
    return RemoteRefused(
        "The result's encoding is not valid.", code=RemoteFailure.RESULT_UNREADABLE
    )
