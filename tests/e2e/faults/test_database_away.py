"""The database goes away while jobs run: handlers stop in time, and each job is retried once."""

from __future__ import annotations

import asyncio
import time

import pytest

from coatcheck import Job, Service, State
from coatcheck.db.embedded import EmbeddedPostgres
from tests.deployment import Deployment, lane_seconds
from tests.waiting import until_true

LEASE_SECONDS = 1.5


class Handlers:
    """One whose first execution runs until it is stopped."""

    def __init__(self) -> None:
        self.service = Service("lab")
        self.runs: list[str] = []
        self.stopped: list[str] = []

        @self.service.post("/hang-once")
        async def hang_once(job: Job) -> str:
            self.runs.append(job.id)
            if self.runs.count(job.id) > 1:
                return "second time"
            try:
                await asyncio.Event().wait()
            finally:
                self.stopped.append(job.id)
            raise AssertionError("unreachable")


@pytest.mark.parametrize("longer", [True, False], ids=["past the lease", "until they stopped"])
async def test_jobs_are_stopped_while_the_database_is_away_and_each_is_retried_once(
    deployment_on_own_server: Deployment, pg_server: EmbeddedPostgres, longer: bool
) -> None:
    deployment = deployment_on_own_server
    handlers = Handlers()
    deployment.start_maintenance()
    await deployment.start_worker(handlers.service, lane_ack_seconds=lane_seconds(LEASE_SECONDS))
    tickets = [await deployment.engine.submit("lab.post__hang_once", retries=0) for _ in range(3)]
    for ticket in tickets:
        await deployment.wait_for_state(ticket, State.PROCESSING)

    await asyncio.to_thread(pg_server.stop)
    away_since = time.monotonic()
    await until_true(lambda: len(handlers.stopped) == 3, "every handler is stopped")
    if longer:
        end = away_since + LEASE_SECONDS
        await until_true(lambda: time.monotonic() > end, "the lease has ended by any clock")
    await asyncio.to_thread(pg_server.start)
    await deployment.reconnect()
    views = await deployment.wait_for_ends(tickets)

    for view in views:
        assert (view.state, view.result) == (State.COMPLETED, b'"second time"')
        assert view.failures == 0
        # Rescued, or given back by the worker itself: whoever came first.
        assert view.crashes + view.interruptions == 1
    assert sorted(handlers.runs) == sorted([ticket.id for ticket in tickets] * 2)
