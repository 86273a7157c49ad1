"""Webhook payloads of batches and of their failed tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from coatcheck.core import Engine
from coatcheck.core.webhook_payloads import SubjectRenderer
from coatcheck.domain.errors import JobNotFound
from coatcheck.domain.ids import to_text
from coatcheck.domain.webhooks import RESULT_BYTES_MAX, DeliveryEvent, SubjectKind
from coatcheck.products.batches import presenter, schemas
from coatcheck.products.batches.repository import BatchRepository


class BatchWebhookPayload(msgspec.Struct, frozen=True):
    """A job, and an event of one of its runs.

    ``run`` has the facts of the event: the counts of a run that ended, or how many tasks have
    ``succeeded`` since the last event. ``job`` is the job now; null if it was deleted.
    """

    id: str
    run_id: str
    run: Mapping[str, Any]
    job: schemas.BatchJob | None


class TaskWebhookPayload(msgspec.Struct, frozen=True):
    """A task that failed. ``task`` is null if its job was deleted."""

    id: str
    job_id: str | None
    run_id: str
    attempts: int
    error_code: str | None
    task: schemas.BatchTaskBody | None


def renderers(engine: Engine) -> Mapping[SubjectKind, SubjectRenderer]:
    """The renderers of batches and tasks, for ``core/webhook_payloads.py``."""

    async def batch(event: DeliveryEvent) -> BatchWebhookPayload:
        batch_id = to_text(event.subject)
        try:
            job = presenter.job(
                await engine.extension(BatchRepository).get(batch_id, org=event.org)
            )
        except JobNotFound:
            job = None
        return BatchWebhookPayload(batch_id, _run(event), event.facts, job)

    async def task(event: DeliveryEvent) -> TaskWebhookPayload:
        facts = event.facts
        job_id, shown = await _task(engine, event)
        return TaskWebhookPayload(
            id=event.subject.hex,
            job_id=job_id,
            run_id=_run(event),
            attempts=facts["attempt"],
            error_code=facts.get("error_code"),
            task=shown,
        )

    return {SubjectKind.BATCH: batch, SubjectKind.TASK: task}


async def _task(
    engine: Engine, event: DeliveryEvent
) -> tuple[str | None, schemas.BatchTaskBody | None]:
    assert event.run is not None, "a task belongs to a run"
    try:
        view = await engine.extension(BatchRepository).get_of_run(event.run, org=event.org)
        found = await engine.extension(BatchRepository).tasks.get(view, event.subject.hex)
        if found.result_is_left_out and (found.result_bytes or 0) <= RESULT_BYTES_MAX:
            found = replace(found, result=await engine.result(found.uuid, org=view.org))
    except JobNotFound:
        return None, None
    return view.id, presenter.task(view, found)


def _run(event: DeliveryEvent) -> str:
    assert event.run is not None, "every event of a batch names a run"
    return to_text(event.run)
