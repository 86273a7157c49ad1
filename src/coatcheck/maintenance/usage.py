"""Aggregates usage, creates a usage report when a day, week or month has ended, and sends usage to
Stripe as meter events: the sums of each hour, once."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any, ClassVar, Final, TypeVar

import httpx2
import msgspec

from coatcheck.core.queries import billing, usage
from coatcheck.core.queries.billing import Marked, MeterEvent
from coatcheck.crash import crash_point
from coatcheck.db.connection import Connection
from coatcheck.db.notifications import CHANGED, Notifier
from coatcheck.domain.limits import USAGE_REPORT_AFTER_SECONDS, USAGE_REPORT_DAYS_BACK
from coatcheck.domain.retry import Backoff
from coatcheck.egress.urls import parse_retry_after
from coatcheck.maintenance.loop import Loop
from coatcheck.tls import trusted_authorities

_log = logging.getLogger(__name__)

API_URL: Final = "https://api.stripe.com"
_VERSION: Final = "2024-06-20"
"""The API version that this code was written for; overrides the account's default."""
_CALL_SECONDS_MAX: Final = 15.0
_ANSWER_BYTES_MAX: Final = 1024 * 1024
_RETRY_AFTER_SECONDS_MAX: Final = 3_600.0
_PAGES_MAX: Final = 20
_HOUR: Final = timedelta(hours=1)
_DUPLICATE_CODE: Final = "duplicate_meter_event"
_DUPLICATE_TEXT: Final = "event already exists with identifier"


class StripeUnavailable(Exception):
    """Stripe cannot be used now. ``retry_after`` is the delay in seconds that it requested."""

    def __init__(self, reason: str, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


class NotSent(StripeUnavailable):
    """Stripe certainly did not accept the request: it was unreachable, or answered 429."""


class AnswerUnknown(StripeUnavailable):
    """The request was sent and its outcome is unknown: no answer, or a 5xx."""


class StripeRefused(Exception):
    """Stripe refused the request, and will refuse it until somebody changes the configuration."""


class _Error(msgspec.Struct):
    type: str = ""
    code: str | None = None
    message: str = ""


class _ErrorBody(msgspec.Struct):
    error: _Error = msgspec.field(default_factory=_Error)


class _Meter(msgspec.Struct):
    id: str
    event_name: str


class _Meters(msgspec.Struct):
    data: list[_Meter]
    has_more: bool = False


class _Summary(msgspec.Struct):
    aggregated_value: float


class _Summaries(msgspec.Struct):
    data: list[_Summary]


class StripeClient:
    """A client of Stripe's API for the account of ``key``."""

    def __init__(self, key: str, *, base_url: str = API_URL) -> None:
        self._client = httpx2.AsyncClient(
            base_url=base_url,
            headers={"authorization": f"Bearer {key}", "stripe-version": _VERSION},
            verify=trusted_authorities(trust_env=False),
            trust_env=False,
            follow_redirects=False,
            timeout=_CALL_SECONDS_MAX,
        )
        self._meters: dict[str, str] = {}

    async def close(self) -> None:
        await self._client.aclose()

    async def send_meter_event(
        self, *, event_name: str, identifier: str, customer: str, value: int, at: datetime
    ) -> None:
        """Send an event. One that Stripe already has counts as sent.

        Raises NotSent, AnswerUnknown, StripeRefused.
        """
        form = {
            "event_name": event_name,
            "identifier": identifier,
            "timestamp": f"{at.timestamp():.0f}",
            "payload[stripe_customer_id]": customer,
            "payload[value]": str(value),
        }
        answer = await self._call("POST", "/v1/billing/meter_events", data=form)
        if not answer.is_success and not _is_duplicate(answer):
            raise _refusal(answer)

    async def counted(self, *, event_name: str, customer: str, hour: datetime) -> float:
        """The value of a meter at Stripe, for a customer and an hour.

        Raises NotSent, AnswerUnknown, StripeRefused.
        """
        meter = self._meters.get(event_name) or await self._find_meter(event_name)
        span = {"start_time": int(hour.timestamp()), "end_time": int((hour + _HOUR).timestamp())}
        answer = await self._call(
            "GET",
            f"/v1/billing/meters/{meter}/event_summaries",
            params={"customer": customer, **span},
        )
        summaries = _decoded(answer, _Summaries)
        return sum(each.aggregated_value for each in summaries.data)

    async def _find_meter(self, event_name: str) -> str:
        after: dict[str, Any] = {}
        for _ in range(_PAGES_MAX):
            params = {"status": "active", "limit": 100, **after}
            page = _decoded(await self._call("GET", "/v1/billing/meters", params=params), _Meters)
            for meter in page.data:
                if meter.event_name == event_name:
                    self._meters[event_name] = meter.id
                    return meter.id
            if not page.has_more or not page.data:
                break
            after = {"starting_after": page.data[-1].id}
        raise StripeRefused("no active meter has this event name")

    async def _call(self, method: str, path: str, **given: Any) -> httpx2.Response:
        try:
            async with (
                asyncio.timeout(_CALL_SECONDS_MAX),
                self._client.stream(method, path, **given) as answer,
            ):
                body = bytearray()
                async for piece in answer.aiter_bytes():
                    body += piece
                    if len(body) > _ANSWER_BYTES_MAX:
                        raise AnswerUnknown("the answer is too long")
                whole = httpx2.Response(
                    answer.status_code, headers=_plain(answer), content=bytes(body)
                )
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            raise NotSent(type(error).__name__) from error
        except (httpx2.HTTPError, TimeoutError) as error:
            raise AnswerUnknown(type(error).__name__) from error
        if whole.status_code == HTTPStatus.TOO_MANY_REQUESTS:
            raise NotSent("429", _retry_after(whole))
        if whole.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise AnswerUnknown(str(whole.status_code), _retry_after(whole))
        return whole


def _plain(answer: httpx2.Response) -> dict[str, str]:
    """The headers that stay valid for a decoded body."""
    wanted = ("retry-after", "date", "content-type")
    return {name: answer.headers[name] for name in wanted if name in answer.headers}


def _retry_after(answer: httpx2.Response) -> float | None:
    return parse_retry_after(answer.headers, datetime.now(UTC), _RETRY_AFTER_SECONDS_MAX)


def _error_of(answer: httpx2.Response) -> _Error:
    try:
        return msgspec.json.decode(answer.content, type=_ErrorBody).error
    except msgspec.MsgspecError:
        return _Error()  # not an answer of Stripe itself; the status is enough


def _is_duplicate(answer: httpx2.Response) -> bool:
    error = _error_of(answer)
    is_known = error.code == _DUPLICATE_CODE or _DUPLICATE_TEXT in error.message
    return answer.status_code in (400, 409) and is_known


def _refusal(answer: httpx2.Response) -> StripeRefused:
    error = _error_of(answer)
    words = [str(answer.status_code), error.type, error.code or ""]
    return StripeRefused(" ".join(word for word in words if word.isprintable() and word)[:200])


_Body = TypeVar("_Body")


def _decoded(answer: httpx2.Response, kind: type[_Body]) -> _Body:
    if not answer.is_success:
        raise _refusal(answer)
    try:
        return msgspec.json.decode(answer.content, type=kind)
    except msgspec.MsgspecError as error:
        raise StripeRefused("the answer is not valid JSON of Stripe's API") from error


_AFTER_SECONDS: Final = 300
"""An hour is sent this long after its end, when its usage is aggregated. Usage that is aggregated
later is sent as another event."""
_DAYS_MAX: Final = 35
"""Stripe accepts no older events."""
_DAYS_BACK: Final = 34
_HOURS_MAX: Final = 200
_EVENTS_MAX: Final = 48
_AT_ONCE: Final = 8
_LEASE_SECONDS: Final = 180.0
_DOUBT_SECONDS: Final = 23 * 3_600.0
"""Stripe remembers an identifier for a day. Up to an hour before that, a retry is safe."""
_REFUSED_SECONDS: Final = 3_600.0
_TICK_SECONDS: Final = 60.0
_BACKOFF: Final = Backoff(base_seconds=1.0, cap_seconds=300.0, jitter=0.5)
_LAST_SECOND: Final = timedelta(seconds=3_599)
"""The time of an event is the last second of its hour, so that a plan that began within the hour
includes it."""


@dataclass(slots=True)
class _Pause:
    """Why the rest of the events is not sent."""

    reason: str
    retry_after: float | None


class StripeMeter(Loop):
    """Sends usage to Stripe. ``event_names`` maps each measure to its event name at Stripe."""

    name: ClassVar[str] = "stripe meter"

    def __init__(
        self, db: Connection, client: StripeClient, event_names: Mapping[str, str]
    ) -> None:
        super().__init__(db)
        self._client = client
        self._event_names = event_names
        self._failures = 0

    async def stop(self) -> None:
        await super().stop()
        await self._client.close()

    async def tick(self) -> float:
        """Create the events of hours that have ended; send due events."""
        hours = await billing.collect_meter_events(
            self._db,
            self._event_names,
            hours_max=_HOURS_MAX,
            after_seconds=_AFTER_SECONDS,
            days_back=_DAYS_BACK,
        )
        if hours:
            crash_point("stripe.collected")
        for expired in await billing.expire_meter_events(self._db, _DAYS_MAX):
            _log.error(
                "Stripe never accepted this usage, and it is too old now: %d %s of %s",
                expired.value,
                expired.measure,
                expired.hour,
                extra={"org_id": expired.org},
            )
        events = await billing.take_meter_events(
            self._db, _EVENTS_MAX, lease_seconds=_LEASE_SECONDS, doubt_seconds=_DOUBT_SECONDS
        )
        if not events:
            return 0.0 if hours == _HOURS_MAX else _TICK_SECONDS
        return await self._send(events)

    async def _send(self, events: Sequence[MeterEvent]) -> float:
        chunk = _Chunk(self._client)
        marked = await chunk.send(events)
        pause = chunk.pause
        seconds = 0.0
        if pause is not None:
            seconds = max(pause.retry_after or 0.0, _BACKOFF.delay(self._failures, random.random()))
            self._failures += 1
            _log.warning(
                "Stripe accepts no usage now: %s; retrying in %.0f s", pause.reason, seconds
            )
        else:
            self._failures = 0
        crash_point("stripe.sent_not_marked")
        await billing.mark_meter_events(self._db, marked)
        sent = sum(each.acknowledged for each in marked)
        if sent:
            _log.info("Stripe accepted %d meter events", sent)
        return seconds


class _Chunk:
    """Sends several events at once, but one after another for each customer and meter, as Stripe
    requires. The first event that cannot be sent stops the rest."""

    def __init__(self, client: StripeClient) -> None:
        self._client = client
        self._places = asyncio.Semaphore(_AT_ONCE)
        self.pause: _Pause | None = None

    async def send(self, events: Sequence[MeterEvent]) -> list[Marked]:
        queues: dict[tuple[str, str], list[MeterEvent]] = {}
        for event in events:
            queues.setdefault((event.customer, event.event_name), []).append(event)
        marked = await asyncio.gather(*(self._send_queue(queue) for queue in queues.values()))
        return [each for queue in marked for each in queue]

    async def _send_queue(self, queue: Sequence[MeterEvent]) -> list[Marked]:
        async with self._places:
            return [await self._send_one(event) for event in queue]

    async def _send_one(self, event: MeterEvent) -> Marked:
        # The doubt of an earlier try stays, unless this one is answered.
        before = event.doubtful_since
        if self.pause is not None:
            return Marked(event, acknowledged=False, doubtful_since=before)
        try:
            if not await self._has(event):
                await self._client.send_meter_event(
                    event_name=event.event_name,
                    identifier=event.identifier,
                    customer=event.customer,
                    value=event.value,
                    at=event.hour + _LAST_SECOND,
                )
        except AnswerUnknown as error:
            self.pause = _Pause(str(error), error.retry_after)
            return Marked(event, False, event.attempted_at, error=str(error))
        except NotSent as error:
            self.pause = _Pause(str(error), error.retry_after)
            return Marked(event, False, before, error=str(error))
        except StripeRefused as error:
            _log.error(
                "Stripe refused usage: %s; measure %s, event name %s, customer %s",
                error,
                event.measure,
                event.event_name,
                event.customer,
                extra={"org_id": event.org},
            )
            return Marked(event, False, before, _REFUSED_SECONDS, str(error))
        return Marked(event, acknowledged=True)

    async def _has(self, event: MeterEvent) -> bool:
        """Whether Stripe already has an event. It is only asked if the first try is too long ago to
        rely on the identifier."""
        if event.doubtful_seconds is None or event.doubtful_seconds < _DOUBT_SECONDS:
            return False
        counted = await self._client.counted(
            event_name=event.event_name, customer=event.customer, hour=event.hour
        )
        if counted >= event.acknowledged + event.value:
            return True
        if counted <= event.acknowledged:
            return False
        raise StripeRefused(f"in doubt: {counted:g} counted, {event.acknowledged} acknowledged")


_ROWS_MAX: Final = 1_000
_ROLLUP_TICK_SECONDS: Final = 0.2


class UsageRollup(Loop):
    """Adds the usage of ended jobs to the sums by day and hour."""

    name: ClassVar[str] = "usage roll-up"

    def __init__(self, db: Connection, notifier: Notifier) -> None:
        super().__init__(db)
        self._notifier = notifier

    async def tick(self) -> float:
        rolled_up = await usage.roll_up(self._db, _ROWS_MAX)
        changed = {group.hex for group in rolled_up.groups}
        if changed:
            self._notifier.notify(CHANGED, changed)
        return 0.0 if rolled_up.deltas == _ROWS_MAX else _ROLLUP_TICK_SECONDS


_REPORTS_MAX: Final = 100
_REPORT_TICK_SECONDS: Final = 900.0
PERIODS: Final = {"daily": "day", "weekly": "week", "monthly": "month"}


class UsageReporter(Loop):
    """Creates the missing usage reports. ``schedule`` is a key of ``PERIODS``."""

    name: ClassVar[str] = "usage reporter"

    def __init__(self, db: Connection, schedule: str) -> None:
        super().__init__(db)
        self._period = PERIODS[schedule]

    async def tick(self) -> float:
        made = await usage.make_reports(
            self._db,
            self._period,
            rows_max=_REPORTS_MAX,
            after_seconds=USAGE_REPORT_AFTER_SECONDS,
            days_back=USAGE_REPORT_DAYS_BACK,
        )
        if made:
            _log.info("created %d usage reports, each for a %s", made, self._period)
        return 0.0 if made >= _REPORTS_MAX else _REPORT_TICK_SECONDS
