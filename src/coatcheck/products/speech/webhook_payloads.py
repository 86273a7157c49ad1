"""Webhook payloads for speech tasks: the task as its user sees it in the HTTP API."""

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


class ExpiredTask(msgspec.Struct, frozen=True):
    """A task whose retention ended before its webhook was delivered. ``expired`` is true."""

    id: str
    generation_id: str | None
    status: schemas.SpeechStatus
    error_code: str | None
    terminal: bool
    expired: bool = True


def renderer(engine: Engine) -> JobRenderer:
    """The product's renderer, for ``core/webhook_payloads.py``."""

    async def render(event: DeliveryEvent, view: JobView | None) -> Any:
        user = None if view is None else user_of(view.owner)
        if view is None or user is None:
            return _expired(event)
        try:
            return await SpeechPresenter(engine, SpeechReader(view.org, user)).job(view)
        except JobNotFound:
            return _expired(event)  # pruned just now

    return render


def _expired(event: DeliveryEvent) -> ExpiredTask:
    facts = event.facts
    state = State(facts["state"])
    return ExpiredTask(
        id=to_text(event.subject),
        generation_id=None
        if facts.get("endpoint") == SPEECH_ENDPOINTS[SpeechType.CLONE]
        else to_text(generation_of(event.subject)),
        status=schemas.STATUSES[state],
        error_code=facts.get("error_code"),
        terminal=state.terminal,
    )
