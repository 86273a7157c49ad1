"""Sends HTTP requests with retries, and follows streams of events over several connections."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx2

from coatcheck.client.errors import ApiError, ConnectionFailed, UnexpectedAnswer, api_error
from coatcheck.client.events import EVENT_BYTES_MAX, AsyncEvents, Reader
from coatcheck.client.request_headers import Bearer, Headers
from coatcheck.client.retries import (
    Deadline,
    RetryPolicy,
    Stopwatch,
    broken,
    surely_not_done,
    worth_retrying,
)
from coatcheck.version import __version__

_log = logging.getLogger("coatcheck.client")

CONNECT_SECONDS_MAX: Final = 10.0
_USER_AGENT: Final = (b"user-agent", f"coatcheck-python/{__version__}".encode())


class AsyncExchange:
    """Sends requests with the caller's credential."""

    def __init__(
        self, http: httpx2.AsyncClient, credential: Bearer, timeout: float, policy: RetryPolicy
    ) -> None:
        if not timeout > 0:
            raise ValueError("timeout must be more than 0 seconds")
        self.http = http
        self.policy = policy
        self.pause = asyncio.sleep
        self._credential = credential
        self._timeout = timeout

    async def send(
        self,
        method: str,
        url: str,
        *,
        headers: Headers | None = None,
        content: bytes | None = None,
        held: float = 0.0,
        deadline: Deadline | None = None,
        repeatable: bool = True,
    ) -> httpx2.Response:
        """Send a request and return its complete 2xx answer. Raises ApiError, ConnectionFailed.

        ``held`` is how long the server was asked to hold it. No retry starts after ``deadline``.
        A request that is not ``repeatable`` is retried only if it certainly had no effect.
        """
        failures = 0
        while True:
            try:
                async with self.open(
                    method, url, headers=headers, content=content, silence=self._timeout + held
                ) as response:
                    await response.aread()
                    return response
            except (ApiError, ConnectionFailed) as error:
                if not (repeatable or surely_not_done(error)):
                    raise
                failures += 1
                await self.wait_to_retry(error, failures, deadline)

    async def wait_to_retry(
        self,
        error: ApiError | ConnectionFailed,
        failures: int,
        deadline: Deadline | None = None,
        *,
        at_least: float = 0.0,
    ) -> None:
        """Wait before the next try, after ``failures`` in a row; raise ``error`` to give up."""
        if isinstance(error, ApiError) and not worth_retrying(error):
            raise error
        retry_after = error.retry_after if isinstance(error, ApiError) else None
        delay = self.policy.delay(failures, retry_after, random.random(), at_least)
        if delay is None or (deadline is not None and delay >= deadline.remaining()):
            raise error
        _log.debug("retrying in %.2f s: %s", delay, error.code)
        await self.pause(delay)

    @asynccontextmanager
    async def open(
        self,
        method: str,
        url: str,
        *,
        headers: Headers | None = None,
        content: bytes | AsyncIterator[bytes] | None = None,
        silence: float,
        is_signed: bool = False,
    ) -> AsyncIterator[httpx2.Response]:
        """Make one try; the caller reads the body of the answer.

        ``silence`` is how long the server may send nothing. A URL that ``is_signed`` needs no
        credential, and gets none.
        """
        timeout = httpx2.Timeout(
            self._timeout, read=silence, connect=min(self._timeout, CONNECT_SECONDS_MAX)
        )
        try:
            async with self.http.stream(
                method,
                url,
                headers=[_USER_AGENT, *(headers or ())],
                content=content,
                auth=None if is_signed else self._credential,
                timeout=timeout,
                follow_redirects=False,
            ) as response:
                if response.status_code >= 400:
                    body = await response.aread()
                    raise api_error(response.status_code, response.headers, body)
                if not response.is_success:
                    raise UnexpectedAnswer(f"the server answered {response.status_code}")
                yield response
        except httpx2.TransportError as error:
            if not broken(error):
                raise UnexpectedAnswer(f"{type(error).__name__}: {error}") from error
            raise ConnectionFailed(
                f"no answer from {self._server(url)}: {str(error) or type(error).__name__}"
            ) from error
        except (httpx2.DecodingError, httpx2.InvalidURL) as error:
            raise UnexpectedAnswer(f"{type(error).__name__}: {error}") from error

    @staticmethod
    def _server(url: str) -> str:
        return httpx2.URL(url).netloc.decode("ascii")


SILENCE_SECONDS_MAX: Final = 45.0
"""The server sends something every 15 seconds; after three times that, the connection is dead."""

STEADY_SECONDS: Final = 10.0
"""A connection that lasted this long did not fail: proxies close long-lived ones."""


async def follow(
    exchange: AsyncExchange, url: str, after: str | None, learn: Callable[[Mapping[str, Any]], None]
) -> AsyncEvents:
    """Every event after the one with the id ``after``, until the job has ended; for many jobs,
    endlessly.

    A broken connection is restored, and the server continues after the last event seen. ``learn``
    gets the job's state before the event that shows it.
    """
    reader = Reader(after)
    failures = 0
    while True:
        connected = Stopwatch()
        error: ApiError | ConnectionFailed
        try:
            async with exchange.open(
                "GET", url, headers=_headers(reader), silence=SILENCE_SECONDS_MAX
            ) as response:
                async for sent in httpx2.EventSource(response, EVENT_BYTES_MAX):
                    event = reader.read(sent)
                    if event is None:
                        continue
                    failures = 0
                    if event.name in ("state", "end"):
                        learn(event.data)
                    yield event
                    if event.name == "end":
                        return
            error = ConnectionFailed("the server ended the stream before the job had ended")
        except (ApiError, ConnectionFailed) as failed:
            error = failed
        if connected.seconds >= STEADY_SECONDS:
            failures = 0
        failures += 1
        await exchange.wait_to_retry(error, failures, at_least=reader.retry_seconds)


def _headers(reader: Reader) -> Headers:
    headers = [(b"accept", b"text/event-stream"), (b"cache-control", b"no-store")]
    if reader.last_id is not None:
        headers.append((b"last-event-id", reader.last_id.encode()))
    return headers
