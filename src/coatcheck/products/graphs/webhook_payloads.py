"""What a webhook says of the graphs surface's jobs: their envelope."""

from __future__ import annotations

from typing import Any

import msgspec

from coatcheck.core.webhook_payloads import JobRenderer
from coatcheck.domain.ids import to_text
from coatcheck.domain.job import JobView
from coatcheck.domain.states import State
from coatcheck.domain.webhooks import RESULT_BYTES_MAX, Notice
from coatcheck.products.graphs import schemas as words
from coatcheck.products.graphs.presenter import GraphsVoice
from coatcheck.settings.graph_operations import GRAPH_ENDPOINTS


class GoneEnvelope(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A job whose retention ended before its webhook was delivered."""

    status: str
    job_id: str
    terminal: bool
    operation: str
    expired: bool
    error_code: str | None = None


def renderer(voice: GraphsVoice) -> JobRenderer:
    """For ``core/webhook_payloads.py``."""

    async def told(notice: Notice, view: JobView | None) -> Any:
        if view is None:
            return _gone(notice)
        envelope = await voice.job(view)
        result = envelope.result
        if result is msgspec.UNSET or memoryview(result).nbytes <= RESULT_BYTES_MAX:
            return envelope
        url = voice.urls(view.id).poll
        return msgspec.structs.replace(envelope, result=msgspec.UNSET, result_url=url)

    return told


def _gone(notice: Notice) -> GoneEnvelope:
    facts = notice.facts
    state = State(facts["state"])
    return GoneEnvelope(
        status=words.STATUSES[state],
        job_id=to_text(notice.subject),
        terminal=state.terminal,
        operation=GRAPH_ENDPOINTS[facts["endpoint"]],
        expired=True,
        error_code=facts.get("error_code"),
    )
