"""Webhook payloads: each body is made at delivery, from what is known then.

The outbox holds facts and no customer data; the rest is read from the job's row. A delivery that
comes after that row was deleted has the facts alone.

    {"type": "job.completed", "timestamp": "2026-01-01T00:00:00Z",
     "state": "completed", "previous_state": "processing", "data": {...}}

The two states are the engine's, at the time of the event. ``data`` is the product's view of the
job, so every product brings a renderer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec

from coatcheck.core.engine import Engine
from coatcheck.domain.errors import JobNotFound
from coatcheck.domain.ids import to_text
from coatcheck.domain.job import JobView
from coatcheck.domain.states import State
from coatcheck.domain.webhooks import DeliveryEvent, SubjectKind

JobRenderer = Callable[[DeliveryEvent, JobView | None], Awaitable[Any]]
"""Makes ``data`` from a job's event, and from the job unless it was deleted."""

SubjectRenderer = Callable[[DeliveryEvent], Awaitable[Any]]
"""Makes ``data`` from an event that is not about a job."""

Render = Callable[[DeliveryEvent], Awaitable[bytes]]
"""Makes the whole body."""

_encode: Final = msgspec.json.Encoder().encode


class WebhookEnvelope(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of a webhook, unless a product has its own. For a job it has the states before and
    after."""

    type: str
    timestamp: datetime
    data: Any
    state: str | None = None
    previous_state: str | None = None


@dataclass(frozen=True, slots=True)
class WholeBody:
    """A renderer returns it to have ``value`` sent as the body, without the envelope."""

    value: Any


class TestPayload(msgspec.Struct, frozen=True):
    """The ``data`` of a test message."""

    endpoint_id: str


class ExpiredJob(msgspec.Struct, frozen=True):
    """A job that was deleted before its webhook was delivered. ``expired`` is true; the other
    fields are those at the time of the event."""

    id: str
    status: str
    attempt_count: int
    error_code: str | None
    terminal: bool
    expired: bool = True


def expired_job(event: DeliveryEvent) -> ExpiredJob:
    """The payload for a job that was deleted."""
    facts = event.facts
    return ExpiredJob(
        to_text(event.subject),
        facts["state"],
        facts["attempt"],
        facts.get("error_code"),
        State(facts["state"]).terminal,
    )


class WebhookPayloads:
    """Renders events: jobs by their service, or else by ``otherwise`` (by default, plainly);
    other subjects by their kind."""

    def __init__(
        self,
        engine: Engine,
        *,
        otherwise: JobRenderer | None = None,
        services: Mapping[str, JobRenderer] | None = None,
        kinds: Mapping[SubjectKind, SubjectRenderer] | None = None,
    ) -> None:
        self._engine = engine
        self._otherwise = otherwise or _plain_job
        self._services = dict(services or {})
        self._kinds = {SubjectKind.TEST: _test, **(kinds or {})}

    async def body(self, event: DeliveryEvent) -> bytes:
        """The body to post. Without a renderer it has the facts alone."""
        if event.kind is not SubjectKind.JOB:
            render = self._kinds.get(event.kind, _facts)
            return _encode(WebhookEnvelope(event.event, event.at, await render(event)))
        data = await self._job(event)
        if isinstance(data, WholeBody):
            return _encode(data.value)
        facts = event.facts
        return _encode(
            WebhookEnvelope(event.event, event.at, data, facts.get("state"), facts.get("previous"))
        )

    async def _job(self, event: DeliveryEvent) -> Any:
        service = str(event.facts.get("endpoint", "")).partition(".")[0]
        render = self._services.get(service, self._otherwise)
        try:
            view = await self._engine.get(to_text(event.subject), org=event.org)
        except JobNotFound:
            view = None
        return await render(event, view)


async def _plain_job(event: DeliveryEvent, view: JobView | None) -> Any:
    """The payload of a job that is no product's: the engine's fields, without the result."""
    if view is None:
        return expired_job(event)
    return {
        "id": view.id,
        "org_id": view.org,
        "endpoint": view.endpoint,
        "status": view.state,
        "attempt_count": view.attempts,
        "error_code": view.error_code,
        "terminal": view.terminal,
    }


async def _facts(event: DeliveryEvent) -> Any:
    facts = {name: fact for name, fact in event.facts.items() if name != "as"}
    return {"id": to_text(event.subject), **facts}


async def _test(event: DeliveryEvent) -> TestPayload:
    return TestPayload(to_text(event.subject))
