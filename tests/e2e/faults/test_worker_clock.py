"""Only the database's clock decides: a worker whose own is ten minutes off does as others do."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path

import pytest

from coatcheck import State
from tests.deployment import Deployment
from tests.e2e.faults.roles import (
    executions_of,
    open_gate,
    payload,
    start_worker_process,
    wait_until_executed,
)
from tests.waiting import eventually_async

TEN_MINUTES = 600.0

SITE_CUSTOMIZE = """
import time

_true_time = time.time
_true_time_ns = time.time_ns
time.time = lambda: _true_time() + {offset}
time.time_ns = lambda: _true_time_ns() + int({offset} * 1e9)
"""


@pytest.mark.parametrize("offset", [TEN_MINUTES, -TEN_MINUTES], ids=["ahead", "behind"])
async def test_a_clock_that_is_ten_minutes_off_changes_nothing(
    deployment: Deployment, tmp_path: Path, offset: float
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SITE_CUSTOMIZE.format(offset=offset))
    deployment.start_maintenance()
    began = await _database_time(deployment)
    worker = await start_worker_process(
        deployment, PYTHONPATH=str(tmp_path / "site"), lane_ack_seconds="urgent=4,standard=4"
    )
    clock = worker.said("ready")[0]["clock"]
    assert abs(clock - time.time() - offset) < TEN_MINUTES / 10, "its clock was not moved"

    long = await deployment.engine.submit("lab.post__wait", payload(deployment, gate="gate"))
    delayed = await deployment.engine.submit(
        "lab.post__note", payload(deployment), delay=1.0, retries=0
    )
    await wait_until_executed(deployment, long)
    # Held for longer than the lease: it is renewed by what the database calls now.
    late = await deployment.wait_for_end(delayed)
    await _until_renewed(deployment)
    open_gate(deployment, "gate")
    view = await deployment.wait_for_end(long)
    ended = await _database_time(deployment)

    for job in (view, late):
        assert job.state is State.COMPLETED
        assert (job.crashes, job.failures, job.interruptions) == (0, 0, 0)
        assert job.dispatched_at is not None
        assert job.started_at is not None
        assert job.finished_at is not None
        assert began <= job.dispatched_at <= job.started_at <= job.finished_at <= ended
    assert late.dispatched_at >= late.run_at
    assert executions_of(deployment, long) == executions_of(deployment, delayed) == 1


async def _database_time(deployment: Deployment) -> datetime:
    now: datetime = await deployment.sql.fetchval("SELECT clock_timestamp()")
    return now


async def _until_renewed(deployment: Deployment) -> None:
    """Wait until the worker was heard of later than a whole lease after it began."""
    await eventually_async(
        lambda: deployment.sql.fetchval(
            "SELECT bool_and(last_seen_at > started_at + interval '4.5 seconds') FROM workers"
        ),
        "the lease was renewed past its first end",
    )
