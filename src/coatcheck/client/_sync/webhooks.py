"""The client's webhooks: who is told of what, and what was sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

from coatcheck.client._sync.exchange import Exchange
from coatcheck.client.addresses import Addresses, with_query
from coatcheck.client.answers import KeysetPage, read
from coatcheck.client.batch_body import converted
from coatcheck.client.batch_request import given
from coatcheck.client.errors import NotFoundError
from coatcheck.client.request_headers import JSON_HEADERS
from coatcheck.client.webhook_body import (
    NotedReports,
    ReplayedDeliveries,
    TakenMessages,
    WebhookDelivery,
    WebhookEndpoint,
    WebhookEndpointList,
    WebhookMessage,
    WebhookSecret,
)
from coatcheck.client.webhook_signatures import WebhookEvent, verify_webhook
from coatcheck.encoding import encode

PAGE_ITEMS: Final = 200


class Webhooks:
    """What a client can do with webhooks: ``client.webhooks``. All but ``verify`` need a key with
    the scope ``admin``.

    Wherever an endpoint or a delivery is asked for, it or its id will do.
    """

    def __init__(self, exchange: Exchange, addresses: Addresses) -> None:
        self._exchange = exchange
        self._addresses = addresses

    @staticmethod
    def verify(
        body: bytes, headers: Mapping[str, str], secret: str | Iterable[str]
    ) -> WebhookEvent:
        """What a webhook tells, if it is genuine; the same as ``verify_webhook``.

        Raises InvalidWebhook.
        """
        return verify_webhook(body, headers, secret)

    def create(
        self,
        url: str | None = None,
        *,
        events: Iterable[str] | None = None,
        description: str | None = None,
        pulled: bool = False,
    ) -> WebhookEndpoint:
        """Register an endpoint. Its ``secret`` is in the answer.

        Without ``events`` it is told of every end of jobs and batches. With ``pulled`` it has no
        URL: ``take`` fetches what there is to tell. A request whose answer was lost is not sent
        again: look with ``list`` whether it is there.
        """
        wanted = given(
            url=url,
            events=None if events is None else list(events),
            description=description,
            pulled=pulled or None,
        )
        response = self._exchange.send(
            "POST",
            self._addresses.webhooks("endpoints"),
            headers=JSON_HEADERS,
            content=encode(wanted),
            repeatable=False,
        )
        return read(response, WebhookEndpoint)

    def list(self) -> tuple[WebhookEndpoint, ...]:
        """All endpoints of the organisation, the oldest first."""
        response = self._exchange.send("GET", self._addresses.webhooks("endpoints"))
        return read(response, WebhookEndpointList).items

    def get(self, endpoint: WebhookEndpoint | str) -> WebhookEndpoint:
        """The endpoint as it is now. Raises NotFoundError."""
        return read(self._exchange.send("GET", self._url(endpoint)), WebhookEndpoint)

    def update(
        self,
        endpoint: WebhookEndpoint | str,
        *,
        url: str | None = None,
        events: Iterable[str] | None = None,
        description: str | None = None,
    ) -> WebhookEndpoint:
        """Change what is given, and return the endpoint. What waits goes to the new URL."""
        wanted = given(
            url=url, events=None if events is None else list(events), description=description
        )
        response = self._exchange.send(
            "PATCH", self._url(endpoint), headers=JSON_HEADERS, content=encode(wanted)
        )
        return read(response, WebhookEndpoint)

    def pause(self, endpoint: WebhookEndpoint | str) -> WebhookEndpoint:
        """Have nothing sent to it; what there is to tell is kept until ``resume``."""
        return self._told(endpoint, "pause")

    def resume(self, endpoint: WebhookEndpoint | str) -> WebhookEndpoint:
        """Have it told again, of all that was kept as well. Also after it had answered 410."""
        return self._told(endpoint, "resume")

    def delete(self, endpoint: WebhookEndpoint | str) -> None:
        """Take it away; what waits for it is not sent. Raises NotFoundError."""
        self.get(endpoint)
        with suppress(NotFoundError):  # the answer to a second try of what the first one did
            self._exchange.send("DELETE", self._url(endpoint))

    def test(self, endpoint: WebhookEndpoint | str) -> WebhookDelivery:
        """Have a ``webhook.test`` sent to it, and return the delivery as it is before that."""
        return read(self._exchange.send("POST", f"{self._url(endpoint)}/test"), WebhookDelivery)

    def secret(self, endpoint: WebhookEndpoint | str | None = None) -> WebhookSecret:
        """What signs: for an endpoint its own secret, for URLs that came with jobs the
        organisation's."""
        return read(self._exchange.send("GET", self._secret_url(endpoint)), WebhookSecret)

    def rotate(self, endpoint: WebhookEndpoint | str | None = None) -> WebhookSecret:
        """Replace that secret. For 24 hours the one before signs along.

        An endpoint's is replaced once, however often the request had to be sent. A request for the
        organisation's whose answer was lost is not sent again: look with ``secret``.
        """
        before = self.secret(endpoint)
        response = self._exchange.send(
            "POST",
            f"{self._secret_url(endpoint)}/rotate",
            headers=None if endpoint is None else JSON_HEADERS,
            content=None if endpoint is None else encode(given(generation=before.generation)),
            repeatable=endpoint is not None,
        )
        return read(response, WebhookSecret)

    def deliveries(
        self,
        endpoint: WebhookEndpoint | str | None = None,
        *,
        job_id: str | None = None,
        status: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Iterator[WebhookDelivery]:
        """What was sent and what is to be, newest first, asked for page by page.

        To one endpoint, or to all; of one job, task or batch; of one status; made since a moment
        and before another, both with their time zone.
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
            page = read(self._exchange.send("GET", page_url), KeysetPage)
            for item in page.items:
                yield converted(item, WebhookDelivery)
            page_url = with_query(page_url, {"cursor": page.next}) if page.next else None

    def delivery(self, delivery: WebhookDelivery | str) -> WebhookDelivery:
        """One delivery as it is now. Raises NotFoundError."""
        url = self._addresses.webhooks("deliveries", _id(delivery))
        return read(self._exchange.send("GET", url), WebhookDelivery)

    def replay(self, delivery: WebhookDelivery | str) -> WebhookDelivery:
        """Have one sent again, at once and under the same id. Raises NotFoundError."""
        url = f"{self._addresses.webhooks('deliveries', _id(delivery))}/replay"
        return read(self._exchange.send("POST", url), WebhookDelivery)

    def replay_since(
        self,
        since: datetime,
        until: datetime | None = None,
        *,
        endpoint: WebhookEndpoint | str | None = None,
        statuses: Iterable[str] | None = None,
    ) -> int:
        """Have all sent again that were made in a span of time, and return how many those are.

        Without ``statuses`` those that were not taken: ``exhausted``, ``disabled``, and those
        ``pending`` whose last try failed.
        """
        url = f"{self._addresses.webhooks()}/replay"
        if endpoint is not None:
            url = f"{self._url(endpoint)}/replay"
        order: dict[str, Any] = given(
            since=_moment(since),
            until=_moment(until),
            statuses=None if statuses is None else list(statuses),
        )
        replayed = 0
        while True:
            response = self._exchange.send("POST", url, headers=JSON_HEADERS, content=encode(order))
            answer = read(response, ReplayedDeliveries)
            replayed += answer.replayed
            if answer.next is None:
                return replayed
            order["cursor"] = answer.next

    def take(
        self, endpoint: WebhookEndpoint | str, *, limit: int = 10, wait: float = 0.0
    ) -> tuple[WebhookMessage, ...]:
        """Fetch what an endpoint that is ``pulled`` is to be told, ``limit`` messages at most.

        With ``wait`` the server answers when there is something, or after so many seconds, 60 at
        most. Report each within a minute, or it comes again.
        """
        response = self._exchange.send(
            "POST",
            f"{self._url(endpoint)}/messages/take",
            headers=JSON_HEADERS,
            content=encode({"limit": limit, "wait": wait}),
            held=wait,
        )
        return read(response, TakenMessages).messages

    def report(
        self,
        endpoint: WebhookEndpoint | str,
        message: WebhookMessage,
        *,
        status_code: int | None = None,
        error: str | None = None,
        retry_after: float | None = None,
    ) -> bool:
        """Say what came of a message: the status that was answered, or why there was no answer.

        Whether its lease still held; otherwise nothing was noted, and it comes again.
        """
        report = {"id": message.id, "lease": message.lease}
        report |= given(status_code=status_code, error=error, retry_after=retry_after)
        response = self._exchange.send(
            "POST",
            f"{self._url(endpoint)}/messages/report",
            headers=JSON_HEADERS,
            content=encode({"reports": [report]}),
        )
        return message.id in read(response, NotedReports).noted

    def _told(self, endpoint: WebhookEndpoint | str, what: str) -> WebhookEndpoint:
        response = self._exchange.send("POST", f"{self._url(endpoint)}/{what}")
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
        raise ValueError("a moment needs its time zone, such as datetime.now(UTC)")
    return None if moment is None else moment.isoformat()
