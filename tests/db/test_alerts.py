"""A job that fails with no attempt left leaves an alert, written with the failure."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from coatcheck.core.queries import maintenance, reports
from coatcheck.domain.job import ClaimedJob, JobEvent
from coatcheck.domain.limits import CRASHES_MAX
from coatcheck.domain.states import State, TransitionEvent
from tests.db.claimer import KEEP_FAILED_SECONDS, Claimer
from tests.db.edge_guard import AsyncpgConnection
from tests.db.events_on_a_database import ROWS_MAX, happen
from tests.db.rows import put_job, state_of

LONG_AGO = datetime.now(UTC) - timedelta(hours=1)


async def events_of(worker: Claimer, job: ClaimedJob) -> list[JobEvent]:
    return await reports.read_events(worker.line, job.org, job.uuid, 0, 100)


async def test_the_last_retry_leaves_an_alert(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(connection, State.PROCESSING, failures=3, failures_max=3)
    assert await worker.settle(job, TransitionEvent.RETRY, code="broke") is State.FAILED
    (alert,) = await events_of(worker, job)
    assert (alert.kind, json.loads(alert.data)) == (
        "alert",
        {
            "code": "max_retries_exhausted",
            "message": "failed 4 times; last: broke: it broke",
            "attempts": 4,
        },
    )


async def test_the_last_crash_leaves_an_alert(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(connection, State.PROCESSING, crashes=CRASHES_MAX)
    await happen(TransitionEvent.CRASH, job, worker)
    (alert,) = await events_of(worker, job)
    told = json.loads(alert.data)
    assert (alert.kind, told["code"], told["attempts"]) == ("alert", "worker_lost", CRASHES_MAX + 1)


async def test_the_last_overrun_leaves_an_alert(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(connection, State.PROCESSING, failures=3, run_deadline=LONG_AGO)
    await maintenance.fail_overrun(
        worker.line, slack_seconds=0, keep_failed_seconds=KEEP_FAILED_SECONDS, rows_max=ROWS_MAX
    )
    (alert,) = await events_of(worker, job)
    assert json.loads(alert.data)["code"] == "max_retries_exhausted"


@pytest.mark.parametrize(
    "event",
    [
        TransitionEvent.RETRY,
        TransitionEvent.FAIL,
        TransitionEvent.UNREACHABLE,
        TransitionEvent.CRASH,
    ],
)
async def test_an_attempt_that_was_not_the_last_and_a_failure_on_purpose_leave_none(
    event: TransitionEvent, connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(connection, State.PROCESSING)
    await happen(event, job, worker)
    assert await state_of(connection, job) is not State.PROCESSING
    assert await events_of(worker, job) == []


async def test_a_stale_holder_leaves_none(connection: AsyncpgConnection, worker: Claimer) -> None:
    job = await put_job(connection, State.QUEUED, failures=3)
    assert await worker.settle(job, TransitionEvent.RETRY) is None
    assert await events_of(worker, job) == []
