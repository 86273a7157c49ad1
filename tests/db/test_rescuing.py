"""Jobs are taken from a worker for its silence, by its lane's time, and for nothing else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from coatcheck.core.queries import maintenance
from coatcheck.domain.lanes import DEFAULT_POLICIES, Lane
from coatcheck.domain.limits import CRASHES_MAX
from coatcheck.domain.states import HELD, State
from tests.db.claimer import KEEP_FAILED_SECONDS, Claimer
from tests.db.edge_guard import AsyncpgConnection
from tests.db.events_on_a_database import ROWS_MAX
from tests.db.rows import put_job, row_of

LONG_AGO = datetime.now(UTC) - timedelta(days=1)
SILENT = "UPDATE workers SET last_seen_at = now() - $1 * interval '1 second'"


@pytest.mark.parametrize("state", sorted(HELD))
async def test_a_live_worker_keeps_its_job_however_long_ago_it_was_claimed(
    state: State, connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(connection, state, dispatched_at=LONG_AGO, started_at=LONG_AGO)
    before = await row_of(connection, job)
    assert await rescued(worker) == []
    assert await row_of(connection, job) == before


@pytest.mark.parametrize("lane", Lane)
async def test_a_worker_that_is_silent_for_longer_than_a_lane_allows_loses_that_lane_s_jobs(
    lane: Lane, connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(connection, State.PROCESSING, lane=lane.value)
    allowed = DEFAULT_POLICIES[lane].ack_seconds
    await connection.execute(SILENT, allowed - 10.0)
    assert await rescued(worker) == []
    await connection.execute(SILENT, allowed + 0.1)
    assert await rescued(worker) == [job.uuid]


async def rescued(worker: Claimer) -> list[object]:
    found = await maintenance.rescue(
        worker.line,
        crashes_max=CRASHES_MAX,
        keep_failed_seconds=KEEP_FAILED_SECONDS,
        rows_max=ROWS_MAX,
    )
    return [job.uuid for job in found]
