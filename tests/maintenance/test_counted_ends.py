"""Jobs that maintenance ends are counted, too."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from coatcheck.domain.limits import CRASHES_TOGETHER_MAX
from coatcheck.domain.states import State
from coatcheck.maintenance.loop import Loop
from coatcheck.settings import Settings
from coatcheck.telemetry.job_stats import JobStats, job_stats_of
from tests.all_products import maintenance
from tests.db.claimer import claimer
from tests.db.rows import ORG, connected, put_job

LONG_AGO = datetime.now(UTC) - timedelta(hours=1)


@pytest.fixture
def job_stats(dsn: str) -> JobStats:
    return job_stats_of(dsn)


@pytest.fixture
async def loops(dsn: str, tmp_path: Path) -> AsyncIterator[dict[str, Loop]]:
    upkeep = maintenance(Settings(database_url=dsn, blob_url=(tmp_path / "blobs").as_uri()))
    yield {loop.name: loop for loop in upkeep.loops}
    await upkeep.stop()


async def test_jobs_of_a_silent_worker_are_counted_as_rescued_and_as_what_became_of_them(
    dsn: str, job_stats: JobStats, loops: dict[str, Loop]
) -> None:
    async with connected(dsn) as connection:
        await put_job(connection, State.PROCESSING)
        await put_job(connection, State.PROCESSING, crashes=CRASHES_TOGETHER_MAX)
        await put_job(connection, State.CANCEL_REQUESTED)
    await loops["rescuer"].tick()
    counted = job_stats.take()
    counts = counted.jobs[ORG, "standard"]
    assert (counts.rescued, counts.failed, counts.cancelled) == (3, 1, 1)
    assert counted.failures == {(ORG, "worker_lost"): 1}


async def test_jobs_whose_time_is_up_are_counted_with_their_error(
    dsn: str, job_stats: JobStats, loops: dict[str, Loop]
) -> None:
    async with connected(dsn) as connection, claimer(dsn):
        await put_job(connection, State.QUEUED, start_deadline=LONG_AGO)
        await put_job(connection, State.PROCESSING, run_deadline=LONG_AGO)
        await loops["expirer"].tick()
    counted = job_stats.take()
    counts = counted.jobs[ORG, "standard"]
    assert (counts.failed, counts.retried) == (1, 1)
    assert counted.failures == {(ORG, "start_deadline_passed"): 1}
