"""Fetches an organisation's webhooks and forwards them, for as long as somebody develops.

It has an endpoint of its own at the server, which is taken away at the end, whichever way that
comes; the server removes those that nobody asks for. A server that is away is waited for. What the
receiver does not take is reported, and comes again within half a minute.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

from coatcheck.cli.forwarder import Forwarder, Outcome
from coatcheck.client import (
    ApiError,
    AsyncClient,
    ClientError,
    ConnectionFailed,
    NotFoundError,
    WebhookEndpoint,
    WebhookMessage,
)
from coatcheck.domain.retry import Backoff
from coatcheck.domain.webhooks import retry_seconds

_WAIT_SECONDS: Final = 30.0
"""How long the server holds the question for messages: less than most proxies allow."""
_PAUSE_SECONDS: Final = 0.5
"""After an answer that came at once without a message: a server about to stop does not hold."""
_DELETE_SECONDS_MAX: Final = 5.0
_BACKOFF: Final = Backoff(base_seconds=0.5, cap_seconds=10.0, jitter=0.2)
_MAY_PASS: Final = frozenset({408, 429})

Say = Callable[[str], None]


class EndpointTakenAway(ClientError):
    """Somebody has deleted the endpoint that messages are fetched from."""

    code = "endpoint_taken_away"


class Listener:
    """Forwards what there is to tell. ``say`` shows what was forwarded, ``warn`` what went wrong.

    ``client`` makes one try at a request: how often it is tried again is decided here.
    """

    def __init__(
        self,
        client: AsyncClient,
        forwarder: Forwarder,
        events: Sequence[str] | None,
        *,
        description: str,
        say: Say,
        warn: Say,
    ) -> None:
        self._webhooks = client.webhooks
        self._forwarder = forwarder
        self._events = events
        self._description = description
        self._say = say
        self._warn = warn
        self._creating: asyncio.Task[WebhookEndpoint] | None = None
        self._failures = 0

    async def begin(self) -> WebhookEndpoint:
        """Register the endpoint that is fetched from. Raises what the client raises."""
        # A task of its own: one that is cancelled half-way would leave an endpoint behind.
        self._creating = asyncio.create_task(
            self._webhooks.create(events=self._events, description=self._description, pulled=True)
        )
        return await asyncio.shield(self._creating)

    async def forward(self, endpoint: WebhookEndpoint) -> None:
        """Forward until cancelled. Raises ApiError for what will not pass by itself."""
        while True:
            try:
                await self._forward_some(endpoint)
            except NotFoundError:
                endpoint = await self._another()
            except (ApiError, ConnectionFailed) as error:
                await self._wait_for_the_server(error)

    async def end(self) -> None:
        """Take the endpoint away. Never raises; says so if it could not be done."""
        if self._creating is None:
            return
        try:
            async with asyncio.timeout(_DELETE_SECONDS_MAX):
                endpoint = await self._creating
                with contextlib.suppress(NotFoundError):
                    await self._webhooks.delete(endpoint)
        except TimeoutError:
            self._left_behind("no answer in time")
        except ClientError as error:
            if self._creating.done() and self._creating.exception() is None:
                self._left_behind(str(error))

    async def _forward_some(self, endpoint: WebhookEndpoint) -> None:
        # Whether the server is back is to be known at once.
        wait = 0.0 if self._failures else _WAIT_SECONDS
        asked_at = time.monotonic()
        messages = await self._webhooks.take(endpoint, wait=wait)
        self._heard_again()
        await asyncio.gather(*(self._deliver(endpoint, message) for message in messages))
        if not messages and time.monotonic() - asked_at < wait / 2:
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _deliver(self, endpoint: WebhookEndpoint, message: WebhookMessage) -> None:
        began = time.monotonic()
        outcome = await self._forwarder.post(message)
        self._say(_line(message, outcome, (time.monotonic() - began) * 1_000))
        while True:
            try:
                noted = await self._webhooks.report(
                    endpoint,
                    message,
                    status_code=outcome.status_code,
                    error=outcome.error,
                    retry_after=outcome.retry_after,
                )
            except NotFoundError:
                return  # the endpoint has gone, and its messages with it
            except (ApiError, ConnectionFailed) as error:
                await self._wait_for_the_server(error)
                continue
            self._heard_again()
            if not noted:
                self._warn(f"{message.id} was reported too late, and comes again")
            return

    async def _another(self) -> WebhookEndpoint:
        """Another endpoint, if the one before has gone while the server was away."""
        if not self._failures:
            raise EndpointTakenAway("the endpoint that was listened on has been deleted")
        while True:
            try:
                endpoint = await self.begin()
            except (ApiError, ConnectionFailed) as error:
                await self._wait_for_the_server(error)
                continue
            self._heard_again()
            self._warn("the endpoint was gone: there is another now, with another secret")
            return endpoint

    async def _wait_for_the_server(self, error: ApiError | ConnectionFailed) -> None:
        """Wait as long as is right. Raises the error if waiting will not help."""
        if isinstance(error, ApiError) and error.status < 500 and error.status not in _MAY_PASS:
            raise error
        asked = error.retry_after if isinstance(error, ApiError) else None
        delay = max(_BACKOFF.delay(self._failures, random.random()), asked or 0.0)
        if not self._failures:
            self._warn(f"{error}; waiting for it to come back")
        self._failures += 1
        await asyncio.sleep(delay)

    def _heard_again(self) -> None:
        if self._failures:
            self._say("the server is back")
        self._failures = 0

    def _left_behind(self, why: str) -> None:
        self._warn(f"the endpoint could not be deleted ({why}); the server does it in 10 minutes")


def _line(message: WebhookMessage, outcome: Outcome, milliseconds: float) -> str:
    """Such as ``12:00:01  job.completed  01K...  204  12 ms``."""
    parts = [
        f"{datetime.now(UTC).astimezone():%H:%M:%S}",
        message.event,
        message.job_id or "-",
        str(outcome),
    ]
    if outcome.is_taken:
        parts.append(f"{milliseconds:.0f} ms")
    elif outcome.status_code == 410:
        parts.append("it wants nothing any more: no more is sent")
    else:
        seconds = retry_seconds(message.tries + 1, 0.0, outcome.retry_after, fetched=True)
        parts.append("not tried again" if seconds is None else f"again in {seconds:g} s")
    return "  ".join(parts)
