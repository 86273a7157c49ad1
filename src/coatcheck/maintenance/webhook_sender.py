"""Posts one webhook, signed, and says what came of it. Follows no redirect, and reads no answer's
text: the status decides."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Final

import httpx2

from coatcheck.core.queries.webhooks import Claimed
from coatcheck.core.webhook_responses import WITH_PEACE, Answer, answered
from coatcheck.core.webhook_secrets import WebhookSecrets
from coatcheck.crash import crash_point
from coatcheck.domain.errors import UrlForbidden
from coatcheck.domain.webhooks import ANSWER_BYTES_MAX, PEACE_SECONDS_MAX, POST_SECONDS_MAX
from coatcheck.egress import Guard, charged_to
from coatcheck.egress.retry_after import asked_seconds
from coatcheck.egress.urls import read_target
from coatcheck.telemetry import traceparents, tracing
from coatcheck.version import __version__

_CONNECT_SECONDS_MAX: Final = 10.0
_KEPT_CONNECTIONS_MAX: Final = 100
_KEPT_SECONDS: Final = 5.0
"""A receiver that closes a connection just as it is used again would cost a try."""


class Poster:
    """Makes the posts of a process, on connections that are kept for a moment."""

    def __init__(
        self, guard: Guard, secrets: WebhookSecrets, *, seconds_max: float = POST_SECONDS_MAX
    ) -> None:
        self._secrets = secrets
        self._seconds_max = seconds_max
        self._client = guard.client(
            # The whole post has a limit of its own.
            timeout=httpx2.Timeout(None, connect=min(_CONNECT_SECONDS_MAX, seconds_max)),
            limits=httpx2.Limits(
                max_connections=None,  # the deliverer bounds them
                max_keepalive_connections=_KEPT_CONNECTIONS_MAX,
                keepalive_expiry=_KEPT_SECONDS,
            ),
        )

    async def close(self) -> None:
        await self._client.aclose()

    async def post(self, claimed: Claimed, body: bytes) -> Answer:
        """Send it once. Never raises for what a receiver or the network does.

        Raises LookUpRefused if it was not sent because its host is not looked up now.
        """
        crash_point("webhook.before_post")
        answer: Answer | None = None
        try:
            async with asyncio.timeout(self._seconds_max):
                response = await self._client.send(self._request(claimed, body), stream=True)
                try:
                    answer = _read(response)
                    await _drain(response)
                finally:
                    await response.aclose()
        except TimeoutError:
            # One that has said its status has answered, however long the rest takes.
            answer = answer or Answer(None, f"no answer within {self._seconds_max:g} seconds")
        except UrlForbidden as error:
            return Answer(None, str(error))
        except httpx2.ConnectTimeout:
            return Answer(None, "the connection was not accepted in time")
        except httpx2.ConnectError:
            return Answer(None, "the connection failed")
        except (httpx2.HTTPError, httpx2.InvalidURL):
            return Answer(None, "the connection broke, or the answer was not HTTP")
        if answer.error is None:
            crash_point("webhook.after_2xx")
        return answer

    def _request(self, claimed: Claimed, body: bytes) -> httpx2.Request:
        read_target(claimed.url)
        traceparent = tracing.current()
        return self._client.build_request(
            "POST",
            claimed.url,
            content=body,
            headers={
                **self._secrets.headers(claimed, body, datetime.now(UTC)),
                "user-agent": f"coatcheck/{__version__}",
                "accept-encoding": "identity",
                **({} if traceparent is None else {traceparents.HEADER: traceparent}),
            },
            extensions=charged_to(claimed.notice.org),
        )


def _read(response: httpx2.Response) -> Answer:
    asked = None
    if response.status_code in WITH_PEACE:
        asked = asked_seconds(response.headers, datetime.now(UTC), PEACE_SECONDS_MAX)
    return answered(response.status_code, asked)


async def _drain(response: httpx2.Response) -> None:
    """Read what there is, so that the connection can be used again; not too much of it.

    The status was there: whatever is wrong with the rest changes nothing.
    """
    read = 0
    try:
        async for piece in response.aiter_raw():
            read += len(piece)
            if read > ANSWER_BYTES_MAX:
                return
    except httpx2.HTTPError:
        return
