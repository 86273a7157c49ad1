"""Webhook payloads for graphs jobs: the same body as in the HTTP API."""

from __future__ import annotations

from typing import Any

import msgspec

from coatcheck.core.webhook_payloads import JobRenderer
from coatcheck.domain.ids import to_text
from coatcheck.domain.job import JobView
from coatcheck.domain.states import State
from coatcheck.domain.webhooks import RESULT_BYTES_MAX, DeliveryEvent
from coatcheck.products.graphs import schemas
from coatcheck.products.graphs.presenter import GraphsPresenter
from coatcheck.settings.graph_operations import GRAPH_ENDPOINTS


class ExpiredGraphJob(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A job whose retention ended before its webhook was delivered."""

    status: str
    job_id: str
    terminal: bool
    operation: str
    expired: bool
    error_code: str | None = None


def renderer(presenter: GraphsPresenter) -> JobRenderer:
    """The product's renderer, for ``core/webhook_payloads.py``."""

    async def render(event: DeliveryEvent, view: JobView | None) -> Any:
        if view is None:
            return _expired(event)
        body = await presenter.job(view)
        result = body.result
        if result is msgspec.UNSET or memoryview(result).nbytes <= RESULT_BYTES_MAX:
            return body
        url = presenter.urls(view.id).poll
        return msgspec.structs.replace(body, result=msgspec.UNSET, result_url=url)

    return render


def _expired(event: DeliveryEvent) -> ExpiredGraphJob:
    facts = event.facts
    state = State(facts["state"])
    return ExpiredGraphJob(
        status=schemas.STATUSES[state],
        job_id=to_text(event.subject),
        terminal=state.terminal,
        operation=GRAPH_ENDPOINTS[facts["endpoint"]],
        expired=True,
        error_code=facts.get("error_code"),
    )
