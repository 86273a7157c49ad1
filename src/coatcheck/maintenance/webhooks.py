"""Delivers webhooks: claims due deliveries, posts them, and records each outcome."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar, Final
from uuid import uuid4

import httpx2

from coatcheck.core.queries import webhooks
from coatcheck.core.queries.webhooks import Claimed, Mark, Room
from coatcheck.core.webhook_payloads import Render
from coatcheck.core.webhooks import (
    RETRY_AFTER_STATUSES,
    ReceiverAnswer,
    WebhookSecrets,
    answer_of,
    mark_of,
)
from coatcheck.crash import crash_point
from coatcheck.db.batcher import Batcher
from coatcheck.db.connection import PINNED_PLANS
from coatcheck.db.database import Database
from coatcheck.db.notifications import CHANGED
from coatcheck.domain.bounds import Bound, share
from coatcheck.domain.errors import (
    BlobStoreUnavailable,
    DatabaseUnavailable,
    LookUpRefused,
    OutcomeUnknown,
    UrlForbidden,
)
from coatcheck.domain.ids import to_text
from coatcheck.domain.webhooks import (
    ANSWER_BYTES_MAX,
    POST_SECONDS_MAX,
    RETRY_AFTER_SECONDS_MAX,
    DeliveryStatus,
    message_id,
)
from coatcheck.egress import Guard, charged_to, receiver_guard
from coatcheck.egress.urls import parse_retry_after, read_target
from coatcheck.maintenance.loop import Loop
from coatcheck.settings import Settings
from coatcheck.telemetry import metrics, traceparents, tracing
from coatcheck.version import __version__

_log = logging.getLogger(__name__)

_CONNECT_SECONDS_MAX: Final = 10.0
_KEPT_CONNECTIONS_MAX: Final = 100
_KEPT_SECONDS: Final = 5.0
"""Short: a receiver that closes a connection just as it is reused would cost a try."""


class WebhookSender:
    """Sends the webhooks of a process, on connections that stay open for a moment."""

    def __init__(
        self, guard: Guard, secrets: WebhookSecrets, *, seconds_max: float = POST_SECONDS_MAX
    ) -> None:
        self._secrets = secrets
        self._seconds_max = seconds_max
        self._client = guard.client(
            # `post` limits the whole request.
            timeout=httpx2.Timeout(None, connect=min(_CONNECT_SECONDS_MAX, seconds_max)),
            limits=httpx2.Limits(
                max_connections=None,  # the deliverer bounds them
                max_keepalive_connections=_KEPT_CONNECTIONS_MAX,
                keepalive_expiry=_KEPT_SECONDS,
            ),
        )

    async def close(self) -> None:
        await self._client.aclose()

    async def post(self, claimed: Claimed, body: bytes) -> ReceiverAnswer:
        """Send a delivery once. Never raises for what a receiver or the network does.

        Raises LookUpRefused if it was not sent because its host name is not resolved now.
        """
        crash_point("webhook.before_post")
        answer: ReceiverAnswer | None = None
        try:
            async with asyncio.timeout(self._seconds_max):
                response = await self._client.send(self._request(claimed, body), stream=True)
                try:
                    answer = _read(response)
                    await _drain(response)
                finally:
                    await response.aclose()
        except TimeoutError:
            # A receiver that has sent its status has answered, however long the body takes.
            answer = answer or ReceiverAnswer(
                None, f"no answer within {self._seconds_max:g} seconds"
            )
        except UrlForbidden as error:
            return ReceiverAnswer(None, str(error))
        except httpx2.ConnectTimeout:
            return ReceiverAnswer(None, "the connection was not accepted in time")
        except httpx2.ConnectError:
            return ReceiverAnswer(None, "the connection failed")
        except (httpx2.HTTPError, httpx2.InvalidURL):
            return ReceiverAnswer(None, "the connection broke, or the answer was not HTTP")
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
            extensions=charged_to(claimed.event.org),
        )


def _read(response: httpx2.Response) -> ReceiverAnswer:
    asked = None
    if response.status_code in RETRY_AFTER_STATUSES:
        asked = parse_retry_after(response.headers, datetime.now(UTC), RETRY_AFTER_SECONDS_MAX)
    return answer_of(response.status_code, asked)


async def _drain(response: httpx2.Response) -> None:
    """Read the rest of the response, up to a limit, so that the connection can be reused.

    The status has arrived: an error in the rest changes nothing.
    """
    read = 0
    try:
        async for piece in response.aiter_raw():
            read += len(piece)
            if read > ANSWER_BYTES_MAX:
                return
    except httpx2.HTTPError:
        return


PLACES: Final = 128
_PLACES_OF_FAILING: Final = PLACES // 2
_PER_ORG: Final = 64
_PER_TARGET: Final = 4
Bound(
    "webhooks",
    of="webhooks that are sent at a time: in total, at most half of that to failing receivers; of "
    "one organisation, and to one receiver, by all servers together",
    over="server",
    value=f"{PLACES}, {_PER_ORG}, {_PER_TARGET}",
    response="they wait their turn",
)
_TARGETS_MAX: Final = 1_000
"""How many targets one claim examines; the next claim continues after them."""
LEASE_SECONDS: Final = 20.0
"""How long the deliveries of a dead server stay claimed. A post may take longer: its lease is
renewed while it is in flight."""
_RENEWED_PER_LEASE: Final = 4
_RENDER_SECONDS_MAX: Final = 20.0
_TICK_SECONDS: Final = 1.0
_TICK_SECONDS_MIN: Final = 0.02
"""The pause between two claims, so that deliveries which become due meanwhile share the next."""
_REST_AFTER_NOTHING_SECONDS: Final = 0.1
"""Due deliveries may be for endpoints that are paused or pulled. Without this pause, every change
of a job would cause another claim."""
_REST_PER_CLAIM: Final = 3
"""With a thousand receivers and a million waiting messages a claim is expensive: not every post
that ends may cause one."""
_NOT_NOW: Final = (BlobStoreUnavailable, DatabaseUnavailable, LookUpRefused, OutcomeUnknown)
"""Temporary errors on our side, which say nothing about the receiver. They spend no try."""
_MARKS_MAX: Final = 200
_DISABLED_ROWS_MAX: Final = 500


@dataclass(frozen=True, slots=True)
class _Posting:
    """A delivery in flight, and its start by this process's clock."""

    delivery: Claimed
    began: float


class WebhookDeliverer(Loop):
    """Sends webhooks until stopped. ``render`` creates their bodies (``webhook_payloads.py``)."""

    name: ClassVar[str] = "deliverer"
    elected: ClassVar[bool] = False

    def __init__(
        self,
        settings: Settings,
        render: Render,
        database: Database,
        *,
        guard: Guard | None = None,
        post_seconds_max: float = POST_SECONDS_MAX,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        super().__init__(database.pooled("deliverer", server_settings=PINNED_PLANS, is_long=True))
        self._mark_db = database.pooled("deliverer marks", server_settings=PINNED_PLANS)
        self._subscription = database.listener.subscribe({CHANGED: self._heard}, on_gap=self.wake)
        self._render = render
        self._sender = WebhookSender(
            guard or receiver_guard(settings),
            WebhookSecrets(settings.require("key_pepper")),
            seconds_max=post_seconds_max,
        )
        self._lease_seconds = lease_seconds
        self._places = share(PLACES, settings.processes)
        self._places_of_failing = share(_PLACES_OF_FAILING, settings.processes)
        self._marks: Batcher[Mark, bool] = Batcher(self._mark, rows_max=_MARKS_MAX)
        self._posts: dict[asyncio.Task[None], _Posting] = {}
        self._renewing: asyncio.Task[None] | None = None
        self._failing = 0
        self._has_disabled = False
        self._claim_seconds = 0.0
        self._found_nothing = False
        self._cursor = webhooks.FIRST
        self._awake = asyncio.Event()

    async def begin(self) -> None:
        """Listen for notifications, and start."""
        await self._subscription.start()
        self._renewing = asyncio.create_task(self._renew_leases(), name="webhook leases")
        self.start()

    async def stop(self) -> None:
        """Claim no more, let deliveries in flight end, and close."""
        await super().stop()
        await self.idle()
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
        await self._subscription.stop()
        await self._marks.drain()
        await self._sender.close()

    def wake(self) -> None:
        """Claim as soon as possible."""
        self._awake.set()

    async def idle(self) -> None:
        """Wait until no delivery is in flight."""
        while self._posts:
            await asyncio.wait(self._posts)

    async def rest(self, seconds: float) -> None:
        least = _REST_AFTER_NOTHING_SECONDS if self._found_nothing else _TICK_SECONDS_MIN
        await asyncio.sleep(max(least, _REST_PER_CLAIM * self._claim_seconds))
        try:
            async with asyncio.timeout(seconds):
                await self._awake.wait()
        except TimeoutError:
            pass  # time for the next claim

    async def tick(self) -> float:
        """Start to send due deliveries, as far as there is room."""
        self._awake.clear()
        if self._has_disabled:
            self._has_disabled = False
            await webhooks.end_disabled(self._db, _DISABLED_ROWS_MAX)
        self._claim_seconds = 0.0
        self._found_nothing = False
        due = await webhooks.next_due_seconds(self._db)
        if due is None or due > 0:
            return _TICK_SECONDS if due is None else min(due, _TICK_SECONDS)
        places = self._places - len(self._posts)
        if places <= 0:
            return _TICK_SECONDS  # a post that ends wakes this loop
        of_failing = max(0, self._places_of_failing - self._failing)
        room = Room(places, of_failing, _PER_ORG, _PER_TARGET)
        began = time.monotonic()
        claimed, self._cursor = await webhooks.claim(
            self._db,
            room,
            uuid4(),
            lease_seconds=self._lease_seconds,
            after=self._cursor,
            targets_max=_TARGETS_MAX,
        )
        self._claim_seconds = time.monotonic() - began
        for delivery in claimed:
            self._begin(delivery)
        if self._cursor != webhooks.FIRST:
            return 0.0  # there are more targets than one claim examines
        self._found_nothing = not self._posts
        return _TICK_SECONDS

    def _heard(self, _: str) -> None:
        self.wake()

    def _begin(self, delivery: Claimed) -> None:
        post = asyncio.create_task(self._deliver(delivery), name="webhook")
        self._posts[post] = _Posting(delivery, time.monotonic())
        post.add_done_callback(self._ended)
        metrics.set_webhooks_posting(len(self._posts))

    def _ended(self, post: asyncio.Task[None]) -> None:
        del self._posts[post]
        metrics.set_webhooks_posting(len(self._posts))
        self.wake()  # there is room for another

    async def _renew_leases(self) -> None:
        """Renew the leases of posts that take long, until cancelled."""
        every = self._lease_seconds / _RENEWED_PER_LEASE
        while True:
            await asyncio.sleep(every)
            before = time.monotonic() - every
            long = [each.delivery for each in self._posts.values() if each.began <= before]
            if not long:
                continue
            try:  # not on the connection for marks, which may be the cause of the delay
                await webhooks.renew(self._db, long, self._lease_seconds)
            except (DatabaseUnavailable, OutcomeUnknown) as error:
                _log.info("leases of webhooks were not renewed: %s", error)
            except Exception:  # noqa: BLE001 - otherwise every later long post would be sent twice
                _log.exception("leases of webhooks were not renewed")
                metrics.record_upkeep_failure(self.name)

    async def _deliver(self, delivery: Claimed) -> None:
        began = time.monotonic()
        self._failing += delivery.failing
        try:
            answer = await self._post(delivery)
            mark = mark_of(
                delivery.event.org,
                delivery.event.id,
                delivery.lease,
                tries=delivery.tries,
                answer=answer,
                luck=random.random(),
            )
            held = await self._marks.ask(mark)
        except _NOT_NOW as error:
            # Its lease expires, and whichever process claims it then delivers it.
            _log.warning(
                "a webhook is sent again when its lease expires: %s",
                error,
                extra=_fields(delivery),
            )
            return
        finally:
            self._failing -= delivery.failing
        self._has_disabled |= mark.status is DeliveryStatus.DISABLED
        _report(delivery, mark, held=held, seconds=time.monotonic() - began)

    async def _post(self, delivery: Claimed) -> ReceiverAnswer:
        """Render and send a delivery. Raises one of ``_NOT_NOW`` if it must be sent later."""
        try:
            async with asyncio.timeout(_RENDER_SECONDS_MAX):
                body = await self._render(delivery.event)
            return await self._send(delivery, body)
        except _NOT_NOW:
            raise
        except TimeoutError:
            raise DatabaseUnavailable("the body could not be rendered in time") from None
        except Exception as error:  # noqa: BLE001 - a defect must not be retried forever
            # Without its text, which may quote a payload.
            _log.error(
                "a webhook could not be sent: %s", type(error).__name__, extra=_fields(delivery)
            )
            return ReceiverAnswer(None, "it could not be sent because of an internal error")

    async def _send(self, delivery: Claimed, body: bytes) -> ReceiverAnswer:
        if delivery.waited_seconds is not None:
            metrics.record_webhook_lag(delivery.waited_seconds)
        if delivery.traceparent is None:
            return await self._sender.post(delivery, body)
        event = delivery.event
        with tracing.span(
            f"webhook {event.event}",
            "client",
            delivery.traceparent,
            {
                "coatcheck.job.id": to_text(event.subject),
                "coatcheck.org": event.org,
                "coatcheck.webhook.id": message_id(event.id),
                "coatcheck.webhook.try": delivery.tries + 1,
            },
        ) as part:
            answer = await self._sender.post(delivery, body)
            if answer.status is not None:
                part.note({"http.response.status_code": answer.status})
            if answer.error is not None:
                part.failed("not_delivered")
            return answer

    async def _mark(self, marks: list[Mark]) -> list[bool]:
        held = await webhooks.mark(self._mark_db, marks)
        return [mark.delivery in held for mark in marks]


def _report(delivery: Claimed, mark: Mark, *, held: bool, seconds: float) -> None:
    outcome = "retried" if mark.status is DeliveryStatus.PENDING else mark.status.value
    metrics.record_webhook_post(outcome if held else "lost", seconds)
    if mark.status is DeliveryStatus.DELIVERED:
        return
    level = logging.INFO if mark.status is DeliveryStatus.PENDING else logging.WARNING
    _log.log(
        level,
        "a webhook was not delivered: %s",
        mark.error,
        extra={"outcome": outcome, **_fields(delivery)},
    )


def _fields(delivery: Claimed) -> dict[str, object]:
    """The fields of a log line about a delivery: never its URL, whose query may be a secret."""
    event = delivery.event
    return {
        "webhook_id": message_id(event.id),
        "event": event.event,
        "subject": to_text(event.subject),
        "org": event.org,
        "tries": delivery.tries + 1,
    }
