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
from coatcheck.domain.webhooks import Notice
from coatcheck.products.speech import schemas as words
from coatcheck.products.speech.model import (
    SPEECH_ENDPOINTS,
    Reader,
    SpeechType,
    generation_of,
    user_of,
)
from coatcheck.products.speech.presenter import TaskVoice


class GoneTask(msgspec.Struct, frozen=True):
    """A task whose retention ended before its webhook was delivered. ``expired`` is true."""

    id: str
    generation_id: str | None
    status: words.SpeechStatus
    error_code: str | None
    terminal: bool
    expired: bool = True


def renderer(engine: Engine) -> JobRenderer:
    """For ``core/webhook_payloads.py``."""

    async def told(notice: Notice, view: JobView | None) -> Any:
        user = None if view is None else user_of(view.owner)
        if view is None or user is None:
            return _gone(notice)
        try:
            return await TaskVoice(engine, Reader(view.org, user)).job(view)
        except JobNotFound:
            return _gone(notice)  # pruned just now

    return told


def _gone(notice: Notice) -> GoneTask:
    facts = notice.facts
    state = State(facts["state"])
    return GoneTask(
        id=to_text(notice.subject),
        generation_id=None
        if facts.get("endpoint") == SPEECH_ENDPOINTS[SpeechType.CLONE]
        else to_text(generation_of(notice.subject)),
        status=words.STATUSES[state],
        error_code=facts.get("error_code"),
        terminal=state.terminal,
    )
