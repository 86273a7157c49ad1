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
from coatcheck.domain.webhooks import Notice, Tells

JobRenderer = Callable[[Notice, JobView | None], Awaitable[Any]]
"""Makes ``data`` of a notice of a job, and the job itself unless it is gone by now."""

SubjectRenderer = Callable[[Notice], Awaitable[Any]]
"""Makes ``data`` of a notice of something else than a job."""

Render = Callable[[Notice], Awaitable[bytes]]
"""Makes the whole body."""

_encode: Final = msgspec.json.Encoder().encode


class Envelope(msgspec.Struct, frozen=True, omit_defaults=True):
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


class ToldEndpoint(msgspec.Struct, frozen=True):
    """What a test message says."""

    endpoint_id: str


class GoneJob(msgspec.Struct, frozen=True):
    """A job whose retention ended before its webhook was delivered. ``expired`` is true, and the
    rest is as of the event."""

    id: str
    status: str
    attempt_count: int
    error_code: str | None
    terminal: bool
    expired: bool = True


def gone_job(notice: Notice) -> GoneJob:
    """What is left to say of a job that is gone."""
    facts = notice.facts
    return GoneJob(
        to_text(notice.subject),
        facts["state"],
        facts["attempt"],
        facts.get("error_code"),
        State(facts["state"]).terminal,
    )


class Notices:
    """Renders notices: of jobs by their service, ``otherwise`` by one renderer for all others (if
    there is none, plainly); of what is no job by its kind."""

    def __init__(
        self,
        engine: Engine,
        *,
        otherwise: JobRenderer | None = None,
        services: Mapping[str, JobRenderer] | None = None,
        kinds: Mapping[Tells, SubjectRenderer] | None = None,
    ) -> None:
        self._engine = engine
        self._otherwise = otherwise or _plain_job
        self._services = dict(services or {})
        self._kinds = {Tells.TEST: _test, **(kinds or {})}

    async def body(self, notice: Notice) -> bytes:
        """The bytes to post. What no product that is on can show is said by the facts alone."""
        if notice.kind is not Tells.JOB:
            render = self._kinds.get(notice.kind, _facts)
            return _encode(Envelope(notice.event, notice.at, await render(notice)))
        data = await self._job(notice)
        if isinstance(data, WholeBody):
            return _encode(data.value)
        facts = notice.facts
        return _encode(
            Envelope(notice.event, notice.at, data, facts.get("state"), facts.get("previous"))
        )

    async def _job(self, notice: Notice) -> Any:
        service = str(notice.facts.get("endpoint", "")).partition(".")[0]
        render = self._services.get(service, self._otherwise)
        try:
            view = await self._engine.get(to_text(notice.subject), org=notice.org)
        except JobNotFound:
            view = None
        return await render(notice, view)


async def _plain_job(notice: Notice, view: JobView | None) -> Any:
    """What is said of a job that is no product's: what the engine knows, without its result."""
    if view is None:
        return gone_job(notice)
    return {
        "id": view.id,
        "org_id": view.org,
        "endpoint": view.endpoint,
        "status": view.state,
        "attempt_count": view.attempts,
        "error_code": view.error_code,
        "terminal": view.terminal,
    }


async def _facts(notice: Notice) -> Any:
    facts = {name: fact for name, fact in notice.facts.items() if name != "as"}
    return {"id": to_text(notice.subject), **facts}


async def _test(notice: Notice) -> ToldEndpoint:
    return ToldEndpoint(to_text(notice.subject))
