"""Sends what organisations used to Stripe, as meter events: each hour's sums, once.

The protocol is write, send, mark. An event is a row, with its value and its identifier, before it
is sent; the identifier is computed from the organisation, the hour, the measure and the number of
the part, so it is the same at every try, and Stripe takes each identifier once. Whoever dies
between the sending and the mark leaves a row that is sent again, under the same identifier.

Usage that is added to an hour later makes a further part, of the difference.

Stripe remembers identifiers for at least 24 hours. An event that was sent, whose answer never came,
and that could not be tried again for nearly as long (nothing ran) is in doubt: Stripe is asked what
it has counted in that hour, and the event is sent only if it is not among it.

While Stripe is away or asks for a pause, nothing is sent, and everything is kept. What it refuses
(a meter that does not exist, say) is tried again every hour, until it is older than Stripe takes.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar, Final

from coatcheck.core.queries import stripe_meter
from coatcheck.core.queries.stripe_meter import Marked, MeterEvent
from coatcheck.crash import crash_point
from coatcheck.db.connection import Line
from coatcheck.domain.retry import Backoff
from coatcheck.maintenance.loop import Loop
from coatcheck.maintenance.stripe_client import AnswerUnknown, NotSent, StripeClient, StripeRefused

_log = logging.getLogger(__name__)

_AFTER_SECONDS: Final = 300
"""An hour is sent this long after its end: what ended in it is rolled up by then. What is not
makes a further part."""
_DAYS_MAX: Final = 35
"""Stripe takes no older events."""
_DAYS_BACK: Final = 34
_HOURS_MAX: Final = 200
_EVENTS_MAX: Final = 48
_AT_ONCE: Final = 8
_LEASE_SECONDS: Final = 180.0
_DOUBT_SECONDS: Final = 23 * 3_600.0
"""An identifier is known to Stripe for a day; until an hour before, trying again is safe."""
_REFUSED_SECONDS: Final = 3_600.0
_LOOK_SECONDS: Final = 60.0
_BACKOFF: Final = Backoff(base_seconds=1.0, cap_seconds=300.0, jitter=0.5)
_LAST_SECOND: Final = timedelta(seconds=3_599)
"""The time of an event is the last second of its hour: a plan that began within the hour has it."""


@dataclass(slots=True)
class _Pause:
    """Why the rest of a chunk is not sent."""

    reason: str
    retry_after: float | None


class StripeMeter(Loop):
    """``event_names`` has the event name at Stripe of each measure that is sent."""

    name: ClassVar[str] = "stripe meter"

    def __init__(self, line: Line, client: StripeClient, event_names: Mapping[str, str]) -> None:
        super().__init__(line)
        self._client = client
        self._event_names = event_names
        self._failures = 0

    async def stop(self) -> None:
        await super().stop()
        await self._client.close()

    async def tick(self) -> float:
        """Make the events of hours that have ended; send what is due."""
        hours = await stripe_meter.collect(
            self._line,
            self._event_names,
            hours_max=_HOURS_MAX,
            after_seconds=_AFTER_SECONDS,
            days_back=_DAYS_BACK,
        )
        if hours:
            crash_point("stripe.collected")
        for expired in await stripe_meter.expire(self._line, _DAYS_MAX):
            _log.error(
                "usage was never taken by Stripe, and is too old now: %d %s of %s",
                expired.value,
                expired.measure,
                expired.hour,
                extra={"org_id": expired.org},
            )
        events = await stripe_meter.take(
            self._line, _EVENTS_MAX, lease_seconds=_LEASE_SECONDS, doubt_seconds=_DOUBT_SECONDS
        )
        if not events:
            return 0.0 if hours == _HOURS_MAX else _LOOK_SECONDS
        return await self._send(events)

    async def _send(self, events: Sequence[MeterEvent]) -> float:
        chunk = _Chunk(self._client)
        marked = await chunk.send(events)
        pause = chunk.pause
        seconds = 0.0
        if pause is not None:
            seconds = max(pause.retry_after or 0.0, _BACKOFF.delay(self._failures, random.random()))
            self._failures += 1
            _log.warning("Stripe takes no usage now: %s; again in %.0f s", pause.reason, seconds)
        else:
            self._failures = 0
        crash_point("stripe.sent_not_marked")
        await stripe_meter.mark(self._line, marked)
        sent = sum(each.acknowledged for each in marked)
        if sent:
            _log.info("Stripe took %d meter events", sent)
        return seconds


class _Chunk:
    """Events that are sent together: several at once, but one after another for a customer and a
    meter, as Stripe wants it. The first that cannot be sent stops the rest."""

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
        # Whatever an earlier try left open stays open, unless this one is answered.
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
        """Whether Stripe has an event already; asked only if it is too long ago to rely on the
        identifier."""
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
