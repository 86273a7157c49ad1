"""What a webhook says of batches, and of their tasks that failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from coatcheck.core import Engine
from coatcheck.core.webhook_payloads import SubjectRenderer
from coatcheck.domain.errors import JobNotFound
from coatcheck.domain.ids import to_text
from coatcheck.domain.webhooks import RESULT_BYTES_MAX, Notice, Tells
from coatcheck.products.batches import presenter as showing
from coatcheck.products.batches import schemas as words
from coatcheck.products.batches.repository import Batches


class ToldBatch(msgspec.Struct, frozen=True):
    """A job, and what has happened to a run of it.

    ``run`` is as of the event: the counts of a run that has ended, or how many tasks have
    ``succeeded`` since the last time. ``job`` is as it is now; null, once it was deleted.
    """

    id: str
    run_id: str
    run: Mapping[str, Any]
    job: words.BatchJob | None


class ToldTask(msgspec.Struct, frozen=True):
    """A task that failed. ``task`` is null once its job was deleted."""

    id: str
    job_id: str | None
    run_id: str
    attempts: int
    error_code: str | None
    task: words.BatchTask | None


def renderers(engine: Engine) -> Mapping[Tells, SubjectRenderer]:
    """For ``core/webhook_payloads.py``."""

    async def batch(notice: Notice) -> ToldBatch:
        batch_id = to_text(notice.subject)
        try:
            job = showing.job(await engine.extension(Batches).get(batch_id, org=notice.org))
        except JobNotFound:
            job = None
        return ToldBatch(batch_id, _run(notice), notice.facts, job)

    async def task(notice: Notice) -> ToldTask:
        facts = notice.facts
        job_id, shown = await _task(engine, notice)
        return ToldTask(
            id=notice.subject.hex,
            job_id=job_id,
            run_id=_run(notice),
            attempts=facts["attempt"],
            error_code=facts.get("error_code"),
            task=shown,
        )

    return {Tells.BATCH: batch, Tells.TASK: task}


async def _task(engine: Engine, notice: Notice) -> tuple[str | None, words.BatchTask | None]:
    assert notice.run is not None, "a task is of a run"
    try:
        view = await engine.extension(Batches).get_of_run(notice.run, org=notice.org)
        found = await engine.extension(Batches).tasks.get(view, notice.subject.hex)
        if found.result_is_left_out and (found.result_bytes or 0) <= RESULT_BYTES_MAX:
            found = replace(found, result=await engine.result(found.uuid, org=view.org))
    except JobNotFound:
        return None, None
    return view.id, showing.task(view, found)


def _run(notice: Notice) -> str:
    assert notice.run is not None, "what is told of a batch is told of a run"
    return to_text(notice.run)
