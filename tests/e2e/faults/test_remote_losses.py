"""Databases, remotes and workers go away while a remote works: nothing is lost, or made twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from coatcheck import State
from coatcheck.core.queries import remote_calls
from coatcheck.db.embedded import EmbeddedPostgres
from coatcheck.db.migrate import migrate
from coatcheck.domain.errors import DatabaseUnavailable, OutcomeUnknown
from coatcheck.domain.retry import DATABASE_ATTEMPTS
from examples.tts_remote import Fault, TtsRemote
from tests.deployment import Deployment
from tests.e2e.faults import history, invariants
from tests.e2e.faults.remote_jobs import FakeRenderer, RemoteJobs
from tests.remotes.fake_service import SECRETS
from tests.waiting import eventually_async, until_true

GATE = 4714
"""The advisory lock that holds a statement up."""
HELD_UP_AT = {
    "parking": "NEW.execution_id IS NOT NULL AND OLD.execution_id IS NULL",
    "finalizing": "NEW.state = 'finalizing'",
    "completing": "NEW.state = 'completed'",
}
"""What PostgreSQL is killed in the middle of, and by what change of a job that is known."""
SPAWN_PATH = "/submit-job"


@pytest.fixture
async def renderer() -> AsyncIterator[FakeRenderer]:
    async with FakeRenderer.running() as opened:
        yield opened


@pytest.fixture
async def speaker(tmp_path: Path) -> AsyncIterator[TtsRemote]:
    async with TtsRemote(tmp_path / "speaker", bearer=SECRETS["SERVICE_KEY"]) as opened:
        yield opened


@pytest.fixture
async def jobs(dsn: str, tmp_path: Path, renderer: FakeRenderer) -> AsyncIterator[RemoteJobs]:
    async with Deployment(dsn, tmp_path, servers=0) as opened:
        await history.keep(opened.sql)
        yield RemoteJobs(opened, renderer.definition())


@pytest.fixture
async def jobs_on_own_server(
    pg_server: EmbeddedPostgres, tmp_path: Path, renderer: FakeRenderer
) -> AsyncIterator[RemoteJobs]:
    await migrate(pg_server.dsn)
    async with Deployment(pg_server.dsn, tmp_path, servers=0) as opened:
        await history.keep(opened.sql)
        yield RemoteJobs(opened, renderer.definition())
        if not pg_server.is_running():
            await asyncio.to_thread(pg_server.start)


async def hold_up(jobs: RemoteJobs, what: str) -> None:
    """Let a statement wait for a lock that this test has."""
    await jobs.deployment.sql.execute(
        f"""
        CREATE FUNCTION wait_for_the_gate() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_advisory_xact_lock({GATE}); RETURN NEW; END $$;
        CREATE TRIGGER wait_for_the_gate BEFORE UPDATE ON jobs FOR EACH ROW
        WHEN ({HELD_UP_AT[what]}) EXECUTE FUNCTION wait_for_the_gate()
        """
    )
    await jobs.deployment.sql.execute("SELECT pg_advisory_lock($1)", GATE)


@pytest.mark.crash
@pytest.mark.parametrize("what", sorted(HELD_UP_AT))
async def test_a_job_is_done_once_though_postgresql_dies_while(
    jobs_on_own_server: RemoteJobs,
    pg_server: EmbeddedPostgres,
    renderer: FakeRenderer,
    what: str,
) -> None:
    jobs = jobs_on_own_server
    await hold_up(jobs, what)
    ticket = await jobs.submit(retries=0)
    async with jobs.working_here():
        await jobs.deployment.wait_until_blocked("coatcheck pool")
        await asyncio.to_thread(pg_server.kill)  # and with it goes the gate
        await asyncio.to_thread(pg_server.start)
        await jobs.deployment.reconnect()
        # Who finds nobody to write to leaves the call to whoever looks next: let that be now.
        await jobs.deployment.sql.execute("UPDATE remote_calls SET due_at = now() WHERE lease > 0")
        view = await jobs.ended_with_nothing_left_over(ticket)
    assert (view.state, view.failures) == (State.COMPLETED, 0)
    assert list(renderer.works) == [view.execution_id]


async def test_a_database_that_stays_away_when_a_job_is_to_be_parked_costs_no_attempt(
    jobs_on_own_server: RemoteJobs,
    pg_server: EmbeddedPostgres,
    renderer: FakeRenderer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs = jobs_on_own_server
    in_vain = 0
    park = remote_calls.park

    async def counted(*arguments: Any) -> bool:
        nonlocal in_vain
        try:
            return await park(*arguments)
        except (DatabaseUnavailable, OutcomeUnknown):
            in_vain += 1
            raise

    monkeypatch.setattr(remote_calls, "park", counted)
    renderer.is_silent = True
    ticket = await jobs.submit(retries=0)
    async with jobs.working_here():
        await until_true(lambda: bool(renderer.works), "the remote has the work")
        await asyncio.to_thread(pg_server.stop)
        renderer.give_answers()
        await until_true(lambda: in_vain >= DATABASE_ATTEMPTS, "a caller would have given up")
        await asyncio.to_thread(pg_server.start)
        await jobs.deployment.reconnect()
        view = await jobs.ended_with_nothing_left_over(ticket)
    assert (view.state, view.failures) == (State.COMPLETED, 0)
    assert list(renderer.works) == [view.execution_id]


async def test_a_remote_that_comes_back_with_its_jobs_is_asked_again(
    jobs: RemoteJobs, speaker: TtsRemote
) -> None:
    jobs.target = target_of(speaker)
    speaker.plan(Fault("stuck_job"))
    ticket = await jobs.submit(retries=0)
    async with jobs.working_here():
        await jobs.parked(ticket)
        await speaker.go_away()
        await eventually_async(
            lambda: jobs.deployment.sql.fetchval("SELECT faults > 0 FROM remote_calls"),
            "somebody found the remote away",
        )
        speaker.clear_faults()
        await speaker.come_back()
        view = await jobs.deployment.wait_for_end(ticket)
        assert view.execution_id is not None
        speech = speaker.jobs.speech(view.execution_id).read_bytes()
        await jobs.ended_with_nothing_left_over(ticket, speech)
    assert (view.state, view.failures, view.unreachables) == (State.COMPLETED, 0, 0)
    assert speaker.jobs.all() == [view.execution_id]
    assert speaker.seen.paths[SPAWN_PATH] == 1


async def test_a_remote_whose_answer_to_a_spawn_is_lost_has_one_job_of_it(
    jobs: RemoteJobs, speaker: TtsRemote
) -> None:
    jobs.target = target_of(speaker)
    speaker.plan(Fault("lost_answer", path=SPAWN_PATH))
    ticket = await jobs.submit()
    async with jobs.working_here():
        await jobs.deployment.wait_for_job(
            ticket, lambda job: job.state is State.RETRYING, "it waits"
        )
        await jobs.deployment.make_due(ticket)
        view = await jobs.deployment.wait_for_end(ticket)
        assert view.execution_id is not None
        speech = speaker.jobs.speech(view.execution_id).read_bytes()
        await jobs.ended_with_nothing_left_over(ticket, speech)
    assert view.state is State.COMPLETED
    assert speaker.jobs.all() == [view.execution_id]
    assert (speaker.seen.jobs_made, speaker.seen.jobs_found) == (1, 1)


async def test_a_worker_that_sleeps_through_its_lease_while_it_spawns_does_no_harm(
    jobs: RemoteJobs, renderer: FakeRenderer
) -> None:
    renderer.is_silent = True
    ticket = await jobs.submit(retries=0)
    sleeper = jobs.start_worker_process()
    await until_true(lambda: bool(renderer.works), "the remote has the work")
    sleeper.pause()
    renderer.give_answers()
    await jobs.end_leases_of_the_dead()
    async with jobs.working_here():
        view = await jobs.ended_with_nothing_left_over(ticket)
        assert (view.state, view.crashes, view.failures) == (State.COMPLETED, 1, 0)
        sleeper.resume()
        assert await sleeper.terminate() == 0
    assert await jobs.ended_with_nothing_left_over(ticket) == view
    assert list(renderer.works) == [view.execution_id]
    assert renderer.spawns_asked_for == 2
    await invariants.stale_writes_change_nothing(jobs.deployment, view)


async def test_what_a_worker_parked_goes_on_when_it_ends(
    jobs: RemoteJobs, renderer: FakeRenderer
) -> None:
    renderer.at_once = False
    tickets = [await jobs.submit(f"{number}") for number in range(20)]
    worker = jobs.start_worker_process()
    for ticket in tickets:
        await jobs.parked(ticket)
    assert await worker.terminate() == 0
    renderer.complete_all()
    async with jobs.working_here():
        views = await jobs.deployment.wait_for_ends(tickets)
    assert {view.state for view in views} == {State.COMPLETED}
    assert [view.attempts for view in views] == [1] * 20
    assert sorted(renderer.works) == sorted(str(view.execution_id) for view in views)
    assert renderer.spawns_asked_for == 20
    assert await jobs.stored() == sorted(f"renders/{number}.wav" for number in range(20))


def target_of(speaker: TtsRemote) -> dict[str, object]:
    return {"kind": "remote", "adapter": "http", "url": speaker.url, "secret": "SERVICE_KEY"}
