"""Who holds a job: one worker at a time, for as long as it is heard of, and nobody after that."""

from __future__ import annotations

import asyncio
import itertools
from uuid import UUID

import pytest

from coatcheck import Job, Service, State
from coatcheck.core.queries import leases
from coatcheck.db.connection import Connection
from coatcheck.domain.errors import DatabaseUnavailable
from coatcheck.worker.worker import Worker
from tests.db.rows import holding, recorded
from tests.deployment import Deployment, lane_seconds
from tests.waiting import until_true


class Handlers:
    """One whose first attempt hangs until it is interrupted, and whose second one completes."""

    def __init__(self) -> None:
        self.service = Service("lab")
        self.runs = 0
        self.interrupted = 0

        @self.service.post("/hang-once")
        async def hang_once(job: Job) -> str:
            self.runs += 1
            if self.runs > 1:
                return "second time"
            try:
                await asyncio.Event().wait()
            finally:
                self.interrupted += 1
            raise AssertionError("unreachable")


async def test_one_missed_heartbeat_is_nothing(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service("lab")
    gate = asyncio.Event()

    @service.post("/wait")
    async def wait() -> str:
        await gate.wait()
        return "undisturbed"

    heartbeat, sent = leases.heartbeat, itertools.count(1)
    answered = asyncio.Event()

    async def answered_the_second_time(line: Connection, boot: int) -> list[UUID]:
        if next(sent) == 1:
            raise DatabaseUnavailable("no answer")
        to_cancel = await heartbeat(line, boot)
        answered.set()
        return to_cancel

    deployment.start_maintenance()
    await deployment.start_worker(service, lane_ack_seconds=lane_seconds(3.0))
    ticket = await deployment.engine.submit("lab.post__wait")
    await deployment.wait_for_state(ticket, State.PROCESSING)
    monkeypatch.setattr(leases, "heartbeat", answered_the_second_time)
    await answered.wait()
    gate.set()
    view = await deployment.wait_for_end(ticket)

    assert (view.state, view.result) == (State.COMPLETED, b'"undisturbed"')
    assert (view.crashes, view.interruptions) == (0, 0)


async def test_handlers_are_stopped_before_their_lease_ends_and_the_job_is_given_back(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    handlers = Handlers()
    await deployment.start_worker(handlers.service, lane_ack_seconds=lane_seconds(3.0))
    ticket = await deployment.engine.submit("lab.post__hang_once", retries=0)
    await deployment.wait_for_state(ticket, State.PROCESSING)
    with monkeypatch.context() as patch:
        patch.setattr(leases, "heartbeat", _unanswered)
        # No upkeep runs, so nobody but the worker itself can let go of the job.
        view = await deployment.wait_for_job(
            ticket, lambda view: view.interruptions == 1, "the worker gives its job back"
        )
        assert view.state is State.QUEUED
        assert (handlers.runs, handlers.interrupted) == (1, 1)
    # Once its heartbeats are answered again, it claims again.
    view = await deployment.wait_for_end(ticket)

    assert (view.state, view.result) == (State.COMPLETED, b'"second time"')
    assert (view.failures, view.crashes, view.interruptions) == (0, 0, 1)


async def test_a_worker_whose_registration_is_gone_stops_its_jobs_and_registers_again(
    deployment: Deployment,
) -> None:
    handlers = Handlers()
    worker = await deployment.start_worker(handlers.service, lane_ack_seconds=lane_seconds(3.0))
    boot = worker.boot
    ticket = await deployment.engine.submit("lab.post__hang_once", retries=0)
    await deployment.wait_for_state(ticket, State.PROCESSING)
    await deployment.sql.execute("DELETE FROM workers")
    view = await deployment.wait_for_end(ticket)

    assert worker.boot > boot
    assert handlers.interrupted == 1
    assert (view.state, view.result) == (State.COMPLETED, b'"second time"')
    assert view.failures == 0
    assert view.crashes + view.interruptions == 1


async def test_a_job_whose_holder_is_unknown_is_rescued(deployment: Deployment) -> None:
    handlers = Handlers()
    handlers.runs = 1
    ticket = await deployment.engine.submit("lab.post__hang_once", retries=0)
    async with holding(deployment.sql):
        await deployment.sql.execute(
            "UPDATE jobs SET state = 'dispatching', lease = (999::bigint << 40) | 1 WHERE id = $1",
            ticket.uuid,
        )
    deployment.start_maintenance()
    await deployment.start_worker(handlers.service)
    view = await deployment.wait_for_end(ticket)

    assert (view.state, view.crashes, view.failures) == (State.COMPLETED, 1, 0)


async def test_a_job_that_loses_its_worker_too_often_is_failed(deployment: Deployment) -> None:
    ticket = await deployment.engine.submit("lab.post__hang_once")
    deployment.start_maintenance()
    for crashes in range(1, 5):
        await deployment.sql.execute(
            recorded("UPDATE jobs SET state = 'queued' WHERE state = 'retrying'")
        )
        async with holding(deployment.sql):
            await deployment.sql.execute(
                "UPDATE jobs SET state = 'dispatching', lease = (999::bigint << 40) | $2"
                " WHERE id = $1",
                ticket.uuid,
                crashes,
            )
        view = await deployment.wait_for_job(
            ticket,
            lambda view, crashes=crashes: view.crashes == crashes,
            f"crash {crashes} is counted",
        )

    assert (view.state, view.error_code) == (State.FAILED, "worker_lost")
    assert view.error_message == "lost its worker 4 times; last: its worker fell silent"
    assert view.failures == 0


async def test_a_worker_that_cannot_hand_in_its_results_lets_its_leases_end(
    deployment: Deployment,
) -> None:
    service = Service("lab")

    @service.post("/greet")
    async def greet(job: Job) -> int:
        return job.attempt

    deployment.start_maintenance()
    worker = await deployment.start_worker(service, lane_ack_seconds=lane_seconds(1.0))
    # Nothing of this boot's first claims can be completed; heartbeats are answered as ever.
    await deployment.sql.execute(
        """
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'this job cannot be completed'; END $$;
        CREATE TRIGGER refuse BEFORE UPDATE ON jobs FOR EACH ROW
        WHEN (NEW.state = 'completed' AND OLD.crashes = 0 AND OLD.interruptions = 0)
        EXECUTE FUNCTION refuse()
        """
    )
    ticket = await deployment.engine.submit("lab.post__greet", retries=0)
    view = await deployment.wait_for_end(ticket)

    assert (view.state, view.failures) == (State.COMPLETED, 0)
    assert view.crashes + view.interruptions >= 1
    await until_true(lambda: worker.rejected >= 1, "the stale result was refused")


async def test_two_workers_of_one_name_are_two_boots(deployment: Deployment) -> None:
    handlers = Handlers()
    first = await deployment.start_worker(handlers.service, name="twin")
    second = await deployment.start_worker(handlers.service, name="twin")

    assert first.boot != second.boot
    rows = await deployment.sql.fetch("SELECT boot FROM workers WHERE name = 'twin' ORDER BY boot")
    assert [row["boot"] for row in rows] == sorted([first.boot, second.boot])


async def test_a_worker_goes_on_after_every_connection_it_has_was_cut(
    deployment: Deployment,
) -> None:
    service = Service("lab")
    gate = asyncio.Event()

    @service.post("/wait")
    async def wait(job: Job) -> str:
        await gate.wait()
        return "still here"

    worker: Worker = await deployment.start_worker(service)
    ticket = await deployment.engine.submit("lab.post__wait")
    await deployment.wait_for_state(ticket, State.PROCESSING)
    cut = await deployment.sql.fetchval(
        """
        SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()
          AND application_name LIKE 'coatcheck %'
        """
    )
    gate.set()
    view = await deployment.wait_for_end(ticket)

    assert cut >= 3
    assert (view.state, view.crashes, view.interruptions) == (State.COMPLETED, 0, 0)
    assert worker.rejected == 0


async def _unanswered(line: Connection, boot: int) -> list[object]:
    raise DatabaseUnavailable("no answer")
