"""Polls the server for webhooks and forwards them to a local receiver.

It creates an endpoint of its own at the server and deletes it on exit; the server removes
endpoints that nobody polls. It waits for a server that is unreachable. It reports failed
deliveries, which the server sends again within half a minute.
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
"""How long the server may hold a poll: less than most proxies allow."""
_PAUSE_SECONDS: Final = 0.5
"""The pause after an immediate empty answer: a server that is shutting down does not hold polls."""
_DELETE_SECONDS_MAX: Final = 5.0
_BACKOFF: Final = Backoff(base_seconds=0.5, cap_seconds=10.0, jitter=0.2)
_MAY_PASS: Final = frozenset({408, 429})

Say = Callable[[str], None]


class EndpointTakenAway(ClientError):
    """Somebody deleted the endpoint that we poll."""

    code = "endpoint_taken_away"


class Listener:
    """Forwards webhooks. ``say`` prints each delivery, ``warn`` each problem.

    ``client`` must not retry requests: the listener decides when to retry.
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
        """Create the endpoint to poll. Raises what the client raises."""
        # A separate task: a request cancelled half-way would leave an endpoint behind.
        self._creating = asyncio.create_task(
            self._webhooks.create(events=self._events, description=self._description, pulled=True)
        )
        return await asyncio.shield(self._creating)

    async def forward(self, endpoint: WebhookEndpoint) -> None:
        """Forward until cancelled. Raises ApiError for errors that retries cannot fix."""
        while True:
            try:
                await self._forward_some(endpoint)
            except NotFoundError:
                endpoint = await self._another()
            except (ApiError, ConnectionFailed) as error:
                await self._wait_for_the_server(error)

    async def end(self) -> None:
        """Delete the endpoint. Never raises; warns if the deletion fails."""
        if self._creating is None:
            return
        try:
            async with asyncio.timeout(_DELETE_SECONDS_MAX):
                endpoint = await self._creating
                with contextlib.suppress(NotFoundError):
                    await self._webhooks.delete(endpoint)
        except TimeoutError:
            self._left_behind("timeout")
        except ClientError as error:
            if self._creating.done() and self._creating.exception() is None:
                self._left_behind(str(error))

    async def _forward_some(self, endpoint: WebhookEndpoint) -> None:
        # After a failure, poll without waiting, to notice at once that the server is back.
        wait = 0.0 if self._failures else _WAIT_SECONDS
        asked_at = time.monotonic()
        messages = await self._webhooks.take(endpoint, wait=wait)
        self._recovered()
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
                return  # the endpoint was deleted, and its messages with it
            except (ApiError, ConnectionFailed) as error:
                await self._wait_for_the_server(error)
                continue
            self._recovered()
            if not noted:
                self._warn(f"{message.id} was reported too late; the server will send it again")
            return

    async def _another(self) -> WebhookEndpoint:
        """Create a new endpoint if the old one was removed while the server was unreachable."""
        if not self._failures:
            raise EndpointTakenAway("somebody deleted the endpoint of this listener")
        while True:
            try:
                endpoint = await self.begin()
            except (ApiError, ConnectionFailed) as error:
                await self._wait_for_the_server(error)
                continue
            self._recovered()
            self._warn("the server had removed the endpoint; created a new one with another secret")
            return endpoint

    async def _wait_for_the_server(self, error: ApiError | ConnectionFailed) -> None:
        """Wait before the next try. Raises the error if waiting cannot help."""
        if isinstance(error, ApiError) and error.status < 500 and error.status not in _MAY_PASS:
            raise error
        requested = error.retry_after if isinstance(error, ApiError) else None
        delay = max(_BACKOFF.delay(self._failures, random.random()), requested or 0.0)
        if not self._failures:
            self._warn(f"{error}; retrying")
        self._failures += 1
        await asyncio.sleep(delay)

    def _recovered(self) -> None:
        if self._failures:
            self._say("the server is back")
        self._failures = 0

    def _left_behind(self, why: str) -> None:
        self._warn(f"cannot delete the endpoint ({why}); the server removes it in 10 minutes")


def _line(message: WebhookMessage, outcome: Outcome, milliseconds: float) -> str:
    """One delivery on a line: ``12:00:01  job.completed  01K...  204  12 ms``."""
    parts = [
        f"{datetime.now(UTC).astimezone():%H:%M:%S}",
        message.event,
        message.job_id or "-",
        str(outcome),
    ]
    if outcome.is_taken:
        parts.append(f"{milliseconds:.0f} ms")
    elif outcome.status_code == 410:
        parts.append("the receiver refuses webhooks; sending stops")
    else:
        seconds = retry_seconds(message.tries + 1, 0.0, outcome.retry_after, fetched=True)
        parts.append("no more attempts" if seconds is None else f"next attempt in {seconds:g} s")
    return "  ".join(parts)
