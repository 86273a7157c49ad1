"""What webhooks say: the body of each is made when it is delivered, of what is known then.

The outbox holds facts and no customer's data; the rest is read from the job's row. Whoever is told
late, after that row has gone, is told the facts.

    {"type": "job.completed", "timestamp": "2026-01-01T00:00:00Z",
     "state": "completed", "previous_state": "processing", "data": {...}}

The two states are those of the engine, as of the event. ``data`` is what a surface shows of its
jobs, so every surface brings a renderer of its own.
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
"""Makes ``data`` of a notice of a job, and the job itself unless it is gone by now."""

SubjectRenderer = Callable[[DeliveryEvent], Awaitable[Any]]
"""Makes ``data`` of a notice of something else than a job."""

Render = Callable[[DeliveryEvent], Awaitable[bytes]]
"""Makes the whole body."""

_encode: Final = msgspec.json.Encoder().encode


class WebhookEnvelope(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of a webhook, unless a surface has one of its own. Of a job it says what it went
    from and to."""

    type: str
    timestamp: datetime
    data: Any
    state: str | None = None
    previous_state: str | None = None


@dataclass(frozen=True, slots=True)
class WholeBody:
    """What a renderer answers to have ``value`` sent as it is, without the envelope."""

    value: Any


class TestPayload(msgspec.Struct, frozen=True):
    """What a test message says."""

    endpoint_id: str


class ExpiredJob(msgspec.Struct, frozen=True):
    """A job whose retention ended before its webhook was delivered. ``expired`` is true, and the
    rest is as of the event."""

    id: str
    status: str
    attempt_count: int
    error_code: str | None
    terminal: bool
    expired: bool = True


def expired_job(event: DeliveryEvent) -> ExpiredJob:
    """What is left to say of a job that is gone."""
    facts = event.facts
    return ExpiredJob(
        to_text(event.subject),
        facts["state"],
        facts["attempt"],
        facts.get("error_code"),
        State(facts["state"]).terminal,
    )


class WebhookPayloads:
    """Renders notices: of jobs by their service, ``otherwise`` by one renderer for all others (if
    there is none, plainly); of what is no job by its kind."""

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
        """The bytes to post. What no product that is on can show is said by the facts alone."""
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
    """What is said of a job that is no product's: what the engine knows, without its result."""
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
