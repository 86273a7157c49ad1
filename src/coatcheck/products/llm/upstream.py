"""The HTTP client of Ollama-shaped targets: streams a chat, or gets a short document.

One client, with its connections, serves all jobs of the process. Targets belong to the operator, so
no egress guard checks them. Nothing else is trusted: redirects and the environment's proxies are
ignored, and every line and every answer has a bound.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any, Final, Self

import httpx2

from coatcheck.products.llm.answers import ANSWER_BYTES_MAX, AnswerTooLarge
from coatcheck.products.llm.model import LlmKind
from coatcheck.settings.targets import LlmTarget
from coatcheck.telemetry import traceparents, tracing
from coatcheck.tls import trusted_authorities
from coatcheck.version import __version__

STALL_PROBE_SECONDS: Final = 60.0
_PROBES: Final = 2
"""A busy machine may lose one probe. Two lost in a row mean that the target is away."""


class TargetStalled(Exception):
    """The target sends nothing, and does not answer probes."""


class StallDetector:
    """Probes a target that has been silent for a while, to tell a slow one from a lost one."""

    def __init__(self, is_alive: Callable[[], Awaitable[bool]], stall_probe_seconds: float) -> None:
        self._is_alive = is_alive
        self._stall_probe_seconds = stall_probe_seconds
        self._heard_at = time.monotonic()

    def on_output(self) -> None:
        self._heard_at = time.monotonic()

    async def run_unless_stalled(self, work: Coroutine[Any, Any, None]) -> None:
        """Run ``work`` for as long as the target answers probes. Raises TargetStalled otherwise."""
        working = asyncio.create_task(work)
        stalled = asyncio.create_task(self._stalled())
        try:
            await asyncio.wait({working, stalled}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                stalled.result()
                raise TargetStalled
            working.result()
        finally:
            for task in (working, stalled):
                task.cancel()
            await asyncio.gather(working, stalled, return_exceptions=True)

    async def _stalled(self) -> None:
        missed = 0
        while missed < _PROBES:
            silent = time.monotonic() - self._heard_at
            if silent < self._stall_probe_seconds:
                missed = 0
                await asyncio.sleep(self._stall_probe_seconds - silent)
            elif await self._is_alive():
                missed = 0
                await asyncio.sleep(self._stall_probe_seconds)
            else:
                missed += 1


CONNECT_SECONDS_MAX: Final = 5.0
SILENCE_SECONDS_MAX: Final = 900.0
"""How long a model may take to be loaded and to read its prompt, or between two tokens, while its
target answers probes (``StallDetector``)."""
GET_SECONDS_MAX: Final = 8.0
"""For a whole GET. Longer than the connection timeout, which then shows as such."""
_GET_BYTES_MAX: Final = 8 * 1024 * 1024
_REFUSAL_BYTES_MAX: Final = 64 * 1024
_KEPT_CONNECTIONS_MAX: Final = 100
_KEPT_SECONDS: Final = 4.0
"""Shorter than servers keep an idle connection, so that they do not close it under a request."""
_SENT: Final = ".send_request_body.complete"
"""The end of the name of the transport's event, which begins with the protocol."""


@dataclass(frozen=True, slots=True)
class TargetDocument:
    """A short document of a target, and the time by the target's clock."""

    body: bytes
    at: datetime


class Upstream:
    """The HTTP client of this process for its targets. A context manager."""

    def __init__(self, *, silence_seconds_max: float = SILENCE_SECONDS_MAX) -> None:
        self.silence_seconds_max = silence_seconds_max
        self._client = httpx2.AsyncClient(
            timeout=httpx2.Timeout(silence_seconds_max, connect=CONNECT_SECONDS_MAX, pool=None),
            limits=httpx2.Limits(
                max_connections=None,  # the targets' concurrency bounds them
                max_keepalive_connections=_KEPT_CONNECTIONS_MAX,
                keepalive_expiry=_KEPT_SECONDS,
            ),
            headers={"user-agent": f"coatcheck/{__version__}", "accept-encoding": "identity"},
            verify=trusted_authorities(trust_env=False),
            trust_env=False,
            follow_redirects=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._client.aclose()

    @asynccontextmanager
    async def ask(
        self, target: LlmTarget, kind: LlmKind, body: bytes, *, on_sent: Callable[[], None]
    ) -> AsyncIterator[httpx2.Response]:
        """POST a chat, and yield the response with its body unread. Leaving closes the connection
        if the body was not read to its end; that makes the target stop.

        ``on_sent`` is called when the whole request has been sent.
        """

        async def trace(event: str, _: dict[str, Any]) -> None:
            if event.endswith(_SENT):
                on_sent()

        request = self._client.build_request(
            "POST",
            f"{target.url}/api/{kind}",
            headers=_headers(target) | {"content-type": "application/json"},
            content=body,
            extensions={"trace": trace},
        )
        response = await self._client.send(request, stream=True)
        try:
            yield response
        finally:
            await response.aclose()

    async def get(self, target: LlmTarget, path: str) -> TargetDocument:
        """GET a short document. Raises httpx2.HTTPError for any failure."""
        try:
            async with asyncio.timeout(GET_SECONDS_MAX):
                async with self._client.stream(
                    "GET", target.url + path, headers=_headers(target)
                ) as response:
                    response.raise_for_status()
                    body = await _beginning(response, _GET_BYTES_MAX)
        except TimeoutError as error:
            raise httpx2.ReadTimeout("the target took too long") from error
        return TargetDocument(body, _date(response))


async def lines(response: httpx2.Response) -> AsyncGenerator[bytes, None]:
    """The lines of a stream as they come, without the empty ones. Raises AnswerTooLarge as soon as
    a line is longer than an answer may be."""
    held = bytearray()
    async for piece in response.aiter_raw():
        held += piece
        if b"\n" in piece:
            whole, _, rest = held.rpartition(b"\n")
            for line in whole.split(b"\n"):
                if stripped := line.strip():
                    yield bytes(stripped)
            held = rest
        if len(held) > ANSWER_BYTES_MAX:
            raise AnswerTooLarge
    if stripped := held.strip():
        yield bytes(stripped)


async def read_refusal(response: httpx2.Response) -> bytes:
    """The beginning of an error's body; empty if it does not come, as the status is enough."""
    try:
        async with asyncio.timeout(GET_SECONDS_MAX):
            return await _beginning(response, _REFUSAL_BYTES_MAX)
    except (httpx2.HTTPError, TimeoutError):
        return b""


async def _beginning(response: httpx2.Response, bytes_max: int) -> bytes:
    read = bytearray()
    async for piece in response.aiter_raw():
        read += piece
        if len(read) >= bytes_max:
            break
    return bytes(read[:bytes_max])


def _date(response: httpx2.Response) -> datetime:
    try:
        moment = parsedate_to_datetime(response.headers.get("date", ""))
    except ValueError:
        return datetime.now(UTC)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _headers(target: LlmTarget) -> dict[str, str]:
    headers = {"authorization": f"Bearer {target.token}"} if target.token else {}
    traceparent = tracing.current()
    if traceparent is not None:
        headers[traceparents.HEADER] = traceparent
    return headers
