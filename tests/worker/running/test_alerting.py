"""A job that fails with no attempt left is told to its callers, to the log and to the metrics."""

from __future__ import annotations

import json
import logging

import pytest

from coatcheck import Job, Service, State
from coatcheck.telemetry import metrics
from tests.deployment import Deployment
from tests.waiting import until_true

ALERT = "a job failed with no attempt left"


def alerts_counted(endpoint: str) -> float:
    for line in metrics.exposition().decode().splitlines():
        if line.startswith(f'coatcheck_alerts_total{{endpoint="{endpoint}"}}'):
            return float(line.rpartition(" ")[2])
    return 0.0


async def test_the_last_retry_sounds_an_alert(
    deployment: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    alarming = Service("alarming")

    @alarming.post("/broken")
    async def run(job: Job) -> str:
        return job.retry("not today", code="not_today")

    await deployment.start_worker(alarming)
    with caplog.at_level(logging.WARNING):
        ticket = await deployment.engine.submit("alarming.post__broken", retries=0)
        view = await deployment.wait_for_end(ticket)
        await until_true(lambda: alerts_counted("alarming.post__broken") == 1, "it is counted")
    (alert,) = await deployment.engine.events(ticket.id)
    told = json.loads(alert.data)
    assert (view.state, view.error_code) == (State.FAILED, "max_retries_exhausted")
    assert (alert.kind, told["code"], told["attempts"]) == ("alert", view.error_code, 1)
    assert told["message"] == view.error_message
    (record,) = [record for record in caplog.records if record.message == ALERT]
    assert record.levelno == logging.WARNING
    assert vars(record)["job_id"] == ticket.id


async def test_a_failure_on_purpose_sounds_none(
    deployment: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    alarming = Service("alarming")

    @alarming.post("/refused")
    async def run(job: Job) -> str:
        return job.fail("not ever")

    await deployment.start_worker(alarming)
    ticket = await deployment.engine.submit("alarming.post__refused")
    assert (await deployment.wait_for_end(ticket)).state is State.FAILED
    assert await deployment.engine.events(ticket.id) == []
    assert [record for record in caplog.records if record.message == ALERT] == []
    assert alerts_counted("alarming.post__refused") == 0
