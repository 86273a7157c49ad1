"""A worker that is told to stop: it claims no more, lets jobs end, and gives back the rest."""

from __future__ import annotations

import asyncio
import logging

import pytest

from coatcheck import Job, Service, State
from coatcheck.worker import worker as agent
from tests.deployment import Deployment
from tests.waiting import eventually_async, until_true

GATE = 4711
"""The advisory lock that holds a claim up."""


class Handlers:
    """One that waits for the gate, one that never ends by itself."""

    def __init__(self) -> None:
        self.service = Service("lab")
        self.gate = asyncio.Event()
        self.interrupted = asyncio.Event()

        @self.service.post("/wait")
        async def wait(job: Job) -> str:
            await self.gate.wait()
            return "ended"

        @self.service.post("/hang")
        async def hang(job: Job) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                self.interrupted.set()


async def test_a_job_that_ends_within_the_grace_is_completed(deployment: Deployment) -> None:
    handlers = Handlers()
    worker = await deployment.start_worker(handlers.service, drain_seconds=60.0)
    ticket = await deployment.engine.submit("lab.post__wait")
    await deployment.wait_for_state(ticket, State.PROCESSING)
    worker.stop()
    later = await deployment.engine.submit("lab.post__wait")
    handlers.gate.set()
    await deployment.worker_ended(worker)

    view = await deployment.engine.get(ticket.id)
    assert (view.state, view.interruptions) == (State.COMPLETED, 0)
    assert await deployment.state(later) is State.QUEUED
    assert await deployment.sql.fetchval("SELECT count(*) FROM workers") == 0


async def test_a_job_that_outlasts_the_grace_is_given_back_without_spending_an_attempt(
    deployment: Deployment,
) -> None:
    handlers = Handlers()
    worker = await deployment.start_worker(handlers.service, drain_seconds=0.1)
    ticket = await deployment.engine.submit("lab.post__hang", retries=0)
    await deployment.wait_for_state(ticket, State.PROCESSING)
    await deployment.stop_worker(worker)

    view = await deployment.engine.get(ticket.id)
    assert handlers.interrupted.is_set()
    assert (view.state, view.interruptions) == (State.QUEUED, 1)
    assert (view.failures, view.crashes, view.attempts) == (0, 0, 0)
    assert await deployment.sql.fetchval("SELECT count(*) FROM workers") == 0


async def test_another_worker_runs_at_once_what_a_draining_one_gave_back(
    deployment: Deployment,
) -> None:
    handlers = Handlers()
    first = await deployment.start_worker(handlers.service)
    ticket = await deployment.engine.submit("lab.post__wait")
    await deployment.wait_for_state(ticket, State.PROCESSING)
    await deployment.stop_worker(first)
    handlers.gate.set()
    await deployment.start_worker(handlers.service)
    view = await deployment.wait_for_end(ticket)

    assert (view.state, view.interruptions, view.crashes) == (State.COMPLETED, 1, 0)


async def test_a_cancelled_job_that_outlasts_the_grace_ends_cancelled(
    deployment: Deployment,
) -> None:
    handlers = Handlers()
    worker = await deployment.start_worker(handlers.service, drain_seconds=0.1)
    ticket = await deployment.engine.submit("lab.post__hang")
    await deployment.wait_for_state(ticket, State.PROCESSING)
    await deployment.engine.cancel(ticket.id)
    await deployment.stop_worker(worker)

    assert await deployment.state(ticket) is State.CANCELLED


async def test_an_idle_worker_ends(deployment: Deployment) -> None:
    worker = await deployment.start_worker(Handlers().service, drain_seconds=60.0)
    await deployment.stop_worker(worker)

    assert await deployment.sql.fetchval("SELECT count(*) FROM workers") == 0


async def test_jobs_of_a_claim_that_was_under_way_are_not_left_to_be_rescued(
    deployment: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, agent.__name__)
    handlers = Handlers()
    await deployment.sql.execute(
        f"""
        CREATE FUNCTION wait_for_the_gate() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_advisory_xact_lock({GATE}); RETURN NEW; END $$;
        CREATE TRIGGER wait_for_the_gate BEFORE UPDATE ON jobs FOR EACH ROW
        WHEN (NEW.state = 'dispatching' AND OLD.state = 'queued')
        EXECUTE FUNCTION wait_for_the_gate()
        """
    )
    await deployment.sql.execute("SELECT pg_advisory_lock($1)", GATE)
    worker = await deployment.start_worker(handlers.service)
    ticket = await deployment.engine.submit("lab.post__hang")
    await eventually_async(
        lambda: deployment.sql.fetchval(
            """
            SELECT count(*) FROM pg_locks
            WHERE locktype = 'advisory' AND NOT granted
              AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
            """
        ),
        "the claim waits at the gate",
    )
    worker.stop()
    await until_true(lambda: "draining" in caplog.messages, "the worker drains")
    await deployment.sql.execute("SELECT pg_advisory_unlock($1)", GATE)
    await deployment.worker_ended(worker)

    view = await deployment.engine.get(ticket.id)
    assert (view.state, view.crashes, view.failures) == (State.QUEUED, 0, 0)
    assert view.interruptions == 1


async def test_a_handler_that_will_not_be_interrupted_keeps_neither_its_job_nor_the_worker(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "DRAIN_STOP_SECONDS", 0.3)
    service = Service("lab")
    gate = asyncio.Event()
    ended = asyncio.Event()

    @service.post("/deaf")
    async def deaf() -> str:
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue
        ended.set()
        return "too late"

    worker = await deployment.start_worker(service)
    ticket = await deployment.engine.submit("lab.post__deaf")
    await deployment.wait_for_state(ticket, State.PROCESSING)
    await deployment.stop_worker(worker)
    view = await deployment.engine.get(ticket.id)
    gate.set()
    await ended.wait()

    assert (view.state, view.interruptions) == (State.QUEUED, 1)
    assert await deployment.engine.get(ticket.id) == view
