"""A job that fails with no attempt left is told to its callers, to the log and to the metrics."""

from __future__ import annotations

import json
import logging

import pytest

from coatcheck import Job, Service, State
from coatcheck.telemetry import metrics
from tests.worker.workshop import Workshop, until_true

ALERT = "a job failed with no attempt left"


def alerts_counted(endpoint: str) -> float:
    for line in metrics.exposition().decode().splitlines():
        if line.startswith(f'coatcheck_alerts_total{{endpoint="{endpoint}"}}'):
            return float(line.rpartition(" ")[2])
    return 0.0


async def test_the_last_retry_sounds_an_alert(
    workshop: Workshop, caplog: pytest.LogCaptureFixture
) -> None:
    alarming = Service("alarming")

    @alarming.post("/broken")
    async def run(job: Job) -> str:
        return job.retry("not today", code="not_today")

    await workshop.start_worker(alarming)
    with caplog.at_level(logging.WARNING):
        ticket = await workshop.engine.submit("alarming.post__broken", retries=0)
        view = await workshop.end_of(ticket)
        await until_true(lambda: alerts_counted("alarming.post__broken") == 1, "it is counted")
    (alert,) = await workshop.engine.events(ticket.id)
    told = json.loads(alert.data)
    assert (view.state, view.error_code) == (State.FAILED, "max_retries_exhausted")
    assert (alert.kind, told["code"], told["attempts"]) == ("alert", view.error_code, 1)
    assert told["message"] == view.error_message
    (record,) = [record for record in caplog.records if record.message == ALERT]
    assert record.levelno == logging.WARNING
    assert vars(record)["job_id"] == ticket.id


async def test_a_failure_on_purpose_sounds_none(
    workshop: Workshop, caplog: pytest.LogCaptureFixture
) -> None:
    alarming = Service("alarming")

    @alarming.post("/refused")
    async def run(job: Job) -> str:
        return job.fail("not ever")

    await workshop.start_worker(alarming)
    ticket = await workshop.engine.submit("alarming.post__refused")
    assert (await workshop.end_of(ticket)).state is State.FAILED
    assert await workshop.engine.events(ticket.id) == []
    assert [record for record in caplog.records if record.message == ALERT] == []
    assert alerts_counted("alarming.post__refused") == 0
