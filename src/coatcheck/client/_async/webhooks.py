"""The client's API for webhooks: endpoints, deliveries, secrets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

from coatcheck.client._async.exchange import AsyncExchange
from coatcheck.client.addresses import Addresses, with_query
from coatcheck.client.answers import KeysetPage, read
from coatcheck.client.batch_request import given
from coatcheck.client.errors import NotFoundError
from coatcheck.client.models import (
    NotedReports,
    ReplayedDeliveries,
    TakenMessages,
    WebhookDelivery,
    WebhookEndpoint,
    WebhookEndpointList,
    WebhookMessage,
    WebhookSecret,
    converted,
)
from coatcheck.client.request_headers import JSON_HEADERS
from coatcheck.client.webhook_signatures import WebhookEvent, verify_webhook
from coatcheck.encoding import encode

PAGE_ITEMS: Final = 200


class AsyncWebhooks:
    """Webhooks: ``client.webhooks``. All methods except ``verify`` need a key with the scope
    ``admin``.

    Every method accepts an endpoint or a delivery, or its id.
    """

    def __init__(self, exchange: AsyncExchange, addresses: Addresses) -> None:
        self._exchange = exchange
        self._addresses = addresses

    @staticmethod
    def verify(
        body: bytes, headers: Mapping[str, str], secret: str | Iterable[str]
    ) -> WebhookEvent:
        """The event in a webhook, if it is genuine; the same as ``verify_webhook``.

        Raises InvalidWebhook.
        """
        return verify_webhook(body, headers, secret)

    async def create(
        self,
        url: str | None = None,
        *,
        events: Iterable[str] | None = None,
        description: str | None = None,
        pulled: bool = False,
    ) -> WebhookEndpoint:
        """Register an endpoint. The answer contains its ``secret``.

        Without ``events`` it gets every end of jobs and batches. With ``pulled`` it has no URL:
        ``take`` fetches its messages. If the answer is lost, the request is not sent again: check
        with ``list`` whether the endpoint exists.
        """
        body = given(
            url=url,
            events=None if events is None else list(events),
            description=description,
            pulled=pulled or None,
        )
        response = await self._exchange.send(
            "POST",
            self._addresses.webhooks("endpoints"),
            headers=JSON_HEADERS,
            content=encode(body),
            repeatable=False,
        )
        return read(response, WebhookEndpoint)

    async def list(self) -> tuple[WebhookEndpoint, ...]:
        """All endpoints of the organisation, oldest first."""
        response = await self._exchange.send("GET", self._addresses.webhooks("endpoints"))
        return read(response, WebhookEndpointList).items

    async def get(self, endpoint: WebhookEndpoint | str) -> WebhookEndpoint:
        """The current state of the endpoint. Raises NotFoundError."""
        return read(await self._exchange.send("GET", self._url(endpoint)), WebhookEndpoint)

    async def update(
        self,
        endpoint: WebhookEndpoint | str,
        *,
        url: str | None = None,
        events: Iterable[str] | None = None,
        description: str | None = None,
    ) -> WebhookEndpoint:
        """Change the given fields, and return the endpoint. Pending messages go to the new URL."""
        body = given(
            url=url, events=None if events is None else list(events), description=description
        )
        response = await self._exchange.send(
            "PATCH", self._url(endpoint), headers=JSON_HEADERS, content=encode(body)
        )
        return read(response, WebhookEndpoint)

    async def pause(self, endpoint: WebhookEndpoint | str) -> WebhookEndpoint:
        """Send nothing to it; its messages are kept until ``resume``."""
        return await self._post_action(endpoint, "pause")

    async def resume(self, endpoint: WebhookEndpoint | str) -> WebhookEndpoint:
        """Send messages again, including those kept. Also reactivates it after a 410."""
        return await self._post_action(endpoint, "resume")

    async def delete(self, endpoint: WebhookEndpoint | str) -> None:
        """Delete it; its pending messages are not sent. Raises NotFoundError."""
        await self.get(endpoint)
        with suppress(NotFoundError):  # the answer to a retry of a request that succeeded
            await self._exchange.send("DELETE", self._url(endpoint))

    async def test(self, endpoint: WebhookEndpoint | str) -> WebhookDelivery:
        """Send it a ``webhook.test``, and return the delivery as it is before that."""
        return read(
            await self._exchange.send("POST", f"{self._url(endpoint)}/test"), WebhookDelivery
        )

    async def secret(self, endpoint: WebhookEndpoint | str | None = None) -> WebhookSecret:
        """The signing secret: of an endpoint, or, for URLs that came with jobs, of the
        organisation."""
        return read(await self._exchange.send("GET", self._secret_url(endpoint)), WebhookSecret)

    async def rotate(self, endpoint: WebhookEndpoint | str | None = None) -> WebhookSecret:
        """Replace that secret. The previous one stays valid for 24 hours.

        An endpoint's secret is replaced once, even if the request is repeated. If the answer is
        lost for the organisation's secret, the request is not sent again: check with ``secret``.
        """
        before = await self.secret(endpoint)
        response = await self._exchange.send(
            "POST",
            f"{self._secret_url(endpoint)}/rotate",
            headers=None if endpoint is None else JSON_HEADERS,
            content=None if endpoint is None else encode(given(generation=before.generation)),
            repeatable=endpoint is not None,
        )
        return read(response, WebhookSecret)

    async def deliveries(
        self,
        endpoint: WebhookEndpoint | str | None = None,
        *,
        job_id: str | None = None,
        status: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> AsyncIterator[WebhookDelivery]:
        """Sent and pending deliveries, newest first, fetched page by page.

        To one endpoint or all; of one job, task or batch; with one status; created since one time
        and before another, both with a time zone.
        """
        query = {
            "job_id": job_id,
            "status": status,
            "since": _moment(since),
            "until": _moment(until),
        }
        url = self._addresses.webhooks("deliveries")
        if endpoint is not None:
            url = f"{self._url(endpoint)}/deliveries"
        page_url: str | None = with_query(url, {"limit": PAGE_ITEMS, **query})
        while page_url is not None:
            page = read(await self._exchange.send("GET", page_url), KeysetPage)
            for item in page.items:
                yield converted(item, WebhookDelivery)
            page_url = with_query(page_url, {"cursor": page.next}) if page.next else None

    async def delivery(self, delivery: WebhookDelivery | str) -> WebhookDelivery:
        """The current state of a delivery. Raises NotFoundError."""
        url = self._addresses.webhooks("deliveries", _id(delivery))
        return read(await self._exchange.send("GET", url), WebhookDelivery)

    async def replay(self, delivery: WebhookDelivery | str) -> WebhookDelivery:
        """Send a delivery again, at once and with the same id. Raises NotFoundError."""
        url = f"{self._addresses.webhooks('deliveries', _id(delivery))}/replay"
        return read(await self._exchange.send("POST", url), WebhookDelivery)

    async def replay_since(
        self,
        since: datetime,
        until: datetime | None = None,
        *,
        endpoint: WebhookEndpoint | str | None = None,
        statuses: Iterable[str] | None = None,
    ) -> int:
        """Send all deliveries of a time span again, and return their number.

        Without ``statuses`` those that failed: ``exhausted``, ``disabled``, and those ``pending``
        whose last try failed.
        """
        url = f"{self._addresses.webhooks()}/replay"
        if endpoint is not None:
            url = f"{self._url(endpoint)}/replay"
        body: dict[str, Any] = given(
            since=_moment(since),
            until=_moment(until),
            statuses=None if statuses is None else list(statuses),
        )
        replayed = 0
        while True:
            response = await self._exchange.send(
                "POST", url, headers=JSON_HEADERS, content=encode(body)
            )
            answer = read(response, ReplayedDeliveries)
            replayed += answer.replayed
            if answer.next is None:
                return replayed
            body["cursor"] = answer.next

    async def take(
        self, endpoint: WebhookEndpoint | str, *, limit: int = 10, wait: float = 0.0
    ) -> tuple[WebhookMessage, ...]:
        """Fetch the messages of a ``pulled`` endpoint, at most ``limit``.

        With ``wait`` the server answers when there are some, or after that many seconds, at most
        60. Report each within a minute, or it is delivered again.
        """
        response = await self._exchange.send(
            "POST",
            f"{self._url(endpoint)}/messages/take",
            headers=JSON_HEADERS,
            content=encode({"limit": limit, "wait": wait}),
            held=wait,
        )
        return read(response, TakenMessages).messages

    async def report(
        self,
        endpoint: WebhookEndpoint | str,
        message: WebhookMessage,
        *,
        status_code: int | None = None,
        error: str | None = None,
        retry_after: float | None = None,
    ) -> bool:
        """Report the outcome of a message: the answer's status, or why there was none.

        Returns whether its lease still held; otherwise nothing was recorded, and it comes again.
        """
        report = {"id": message.id, "lease": message.lease}
        report |= given(status_code=status_code, error=error, retry_after=retry_after)
        response = await self._exchange.send(
            "POST",
            f"{self._url(endpoint)}/messages/report",
            headers=JSON_HEADERS,
            content=encode({"reports": [report]}),
        )
        return message.id in read(response, NotedReports).noted

    async def _post_action(self, endpoint: WebhookEndpoint | str, what: str) -> WebhookEndpoint:
        response = await self._exchange.send("POST", f"{self._url(endpoint)}/{what}")
        return read(response, WebhookEndpoint)

    def _url(self, endpoint: WebhookEndpoint | str) -> str:
        return self._addresses.webhooks("endpoints", _id(endpoint))

    def _secret_url(self, endpoint: WebhookEndpoint | str | None) -> str:
        below = self._addresses.webhooks() if endpoint is None else self._url(endpoint)
        return f"{below}/secret"


def _id(named: WebhookEndpoint | WebhookDelivery | str) -> str:
    return named if isinstance(named, str) else named.id


def _moment(moment: datetime | None) -> str | None:
    if moment is not None and moment.tzinfo is None:
        raise ValueError("the time needs a time zone, such as datetime.now(UTC)")
    return None if moment is None else moment.isoformat()
