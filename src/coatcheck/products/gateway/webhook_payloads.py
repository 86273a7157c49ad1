"""Webhook payloads for the gateway's jobs, and for jobs that belong to no other product."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from coatcheck.core.webhook_payloads import JobRenderer, expired_job
from coatcheck.domain.job import JobView
from coatcheck.domain.webhooks import RESULT_BYTES_MAX, DeliveryEvent
from coatcheck.products.gateway import schemas
from coatcheck.products.gateway.context import GatewayContext
from coatcheck.products.gateway.naming import endpoint_ref

_NO_RESULT: Final = msgspec.Raw(b"null")


class UnnamedJob(msgspec.Struct, frozen=True):
    """The payload for a job whose endpoint is not named like a service's.

    A Python program can submit such jobs with an ``Engine``.
    """

    id: str
    org_id: str
    status: str
    attempt_count: int
    result_summary: msgspec.Raw
    last_error: schemas.LastError | None
    terminal: bool


def renderer(context: GatewayContext) -> JobRenderer:
    """The gateway's renderer, for ``core/webhook_payloads.py``."""

    async def render(event: DeliveryEvent, view: JobView | None) -> Any:
        if view is None:
            return expired_job(event)
        ref = endpoint_ref(view)
        if ref is None:
            return _unnamed(view)
        presenter = await context.presenter(view.org, ref.service)
        job: schemas.GatewayJob = await presenter.job(view)
        if memoryview(job.result_summary).nbytes <= RESULT_BYTES_MAX:
            return job
        url = presenter.urls(view.id).poll
        return msgspec.structs.replace(
            job, result_summary=_NO_RESULT, result_omitted=True, result_url=url
        )

    return render


def _unnamed(view: JobView) -> UnnamedJob:
    result, code = view.result, view.error_code
    fits = result is not None and len(result) <= RESULT_BYTES_MAX
    return UnnamedJob(
        id=view.id,
        org_id=view.org,
        status=schemas.STATUSES[view.state],
        attempt_count=view.attempts,
        result_summary=msgspec.Raw(result) if result is not None and fits else _NO_RESULT,
        last_error=None if code is None else schemas.LastError(code, view.error_message or ""),
        terminal=view.terminal,
    )
