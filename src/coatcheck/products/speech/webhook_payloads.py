"""What a webhook says of the speech surface's tasks: the task, as its user is shown it."""

from __future__ import annotations

from typing import Any

import msgspec

from coatcheck.core import Engine
from coatcheck.core.webhook_payloads import JobRenderer
from coatcheck.domain.errors import JobNotFound
from coatcheck.domain.ids import to_text
from coatcheck.domain.job import JobView
from coatcheck.domain.states import State
from coatcheck.domain.webhooks import DeliveryEvent
from coatcheck.products.speech import schemas
from coatcheck.products.speech.model import (
    SPEECH_ENDPOINTS,
    SpeechReader,
    SpeechType,
    generation_of,
    user_of,
)
from coatcheck.products.speech.presenter import SpeechPresenter


class GoneTask(msgspec.Struct, frozen=True):
    """A task whose retention ended before its webhook was delivered. ``expired`` is true."""

    id: str
    generation_id: str | None
    status: schemas.SpeechStatus
    error_code: str | None
    terminal: bool
    expired: bool = True


def renderer(engine: Engine) -> JobRenderer:
    """For ``core/webhook_payloads.py``."""

    async def told(event: DeliveryEvent, view: JobView | None) -> Any:
        user = None if view is None else user_of(view.owner)
        if view is None or user is None:
            return _gone(event)
        try:
            return await SpeechPresenter(engine, SpeechReader(view.org, user)).job(view)
        except JobNotFound:
            return _gone(event)  # pruned just now

    return told


def _gone(event: DeliveryEvent) -> GoneTask:
    facts = event.facts
    state = State(facts["state"])
    return GoneTask(
        id=to_text(event.subject),
        generation_id=None
        if facts.get("endpoint") == SPEECH_ENDPOINTS[SpeechType.CLONE]
        else to_text(generation_of(event.subject)),
        status=schemas.STATUSES[state],
        error_code=facts.get("error_code"),
        terminal=state.terminal,
    )
