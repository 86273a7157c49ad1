"""Posts a webhook to the developer's URL, with the same bytes, headers and errors as the server."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

import httpx2

from coatcheck.client import WebhookMessage
from coatcheck.client.retry_after import retry_after_seconds
from coatcheck.domain.webhooks import PEACE_SECONDS_MAX, POST_SECONDS_MAX
from coatcheck.version import __version__

_RETRY_AFTER_STATUSES: Final = frozenset({429, 503})


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a post: a status code, or why there was no response."""

    status_code: int | None = None
    error: str | None = None
    retry_after: float | None = None

    @property
    def is_taken(self) -> bool:
        return self.status_code is not None and 200 <= self.status_code < 300

    def __str__(self) -> str:
        return self.error or str(self.status_code)


class Forwarder:
    """Posts to one URL. A context manager."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._http = httpx2.AsyncClient(
            trust_env=False, timeout=None, limits=httpx2.Limits(max_keepalive_connections=0)
        )

    async def __aenter__(self) -> Forwarder:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def post(self, message: WebhookMessage) -> Outcome:
        """Post the signed bytes once. Never raises for errors of the receiver."""
        headers = message.headers | {"user-agent": f"coatcheck/{__version__}"}
        try:
            async with (
                asyncio.timeout(POST_SECONDS_MAX),
                self._http.stream(
                    "POST", self.url, content=message.body.encode(), headers=headers
                ) as answer,
            ):
                return _read(answer)
        except TimeoutError:
            return Outcome(error=f"no answer within {POST_SECONDS_MAX:g} seconds")
        except httpx2.ConnectError:
            return Outcome(error="the connection failed")
        except httpx2.HTTPError:
            return Outcome(error="the connection broke, or the answer was not HTTP")


def _read(answer: httpx2.Response) -> Outcome:
    requested = None
    if answer.status_code in _RETRY_AFTER_STATUSES:
        requested = retry_after_seconds(answer.headers)
    return Outcome(
        answer.status_code,
        retry_after=None if requested is None else min(requested, PEACE_SECONDS_MAX),
    )
