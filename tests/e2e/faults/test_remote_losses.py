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
from tests.e2e.faults import history, invariants
from tests.e2e.faults.remote_lab import RemoteLaboratory, Studio
from tests.remotes.fake_service import SECRETS
from tests.waiting import eventually_async
from tests.worker.workshop import until_true

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
async def studio() -> AsyncIterator[Studio]:
    async with Studio.running() as opened:
        yield opened


@pytest.fixture
async def speaker(tmp_path: Path) -> AsyncIterator[TtsRemote]:
    async with TtsRemote(tmp_path / "speaker", bearer=SECRETS["SERVICE_KEY"]) as opened:
        yield opened


@pytest.fixture
async def laboratory(dsn: str, tmp_path: Path, studio: Studio) -> AsyncIterator[RemoteLaboratory]:
    async with RemoteLaboratory(dsn, tmp_path) as opened:
        opened.target = studio.definition()
        await history.keep(opened.sql)
        yield opened


@pytest.fixture
async def laboratory_on_own_server(
    pg_server: EmbeddedPostgres, tmp_path: Path, studio: Studio
) -> AsyncIterator[RemoteLaboratory]:
    await migrate(pg_server.dsn)
    async with RemoteLaboratory(pg_server.dsn, tmp_path) as opened:
        opened.target = studio.definition()
        await history.keep(opened.sql)
        yield opened
        if not pg_server.is_running():
            await asyncio.to_thread(pg_server.start)


async def hold_up(laboratory: RemoteLaboratory, what: str) -> None:
    """Let a statement wait for a lock that this test has."""
    await laboratory.sql.execute(
        f"""
        CREATE FUNCTION wait_for_the_gate() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_advisory_xact_lock({GATE}); RETURN NEW; END $$;
        CREATE TRIGGER wait_for_the_gate BEFORE UPDATE ON jobs FOR EACH ROW
        WHEN ({HELD_UP_AT[what]}) EXECUTE FUNCTION wait_for_the_gate()
        """
    )
    await laboratory.sql.execute("SELECT pg_advisory_lock($1)", GATE)


@pytest.mark.crash
@pytest.mark.parametrize("what", sorted(HELD_UP_AT))
async def test_a_job_is_done_once_though_postgresql_dies_while(
    laboratory_on_own_server: RemoteLaboratory,
    pg_server: EmbeddedPostgres,
    studio: Studio,
    what: str,
) -> None:
    laboratory = laboratory_on_own_server
    await hold_up(laboratory, what)
    ticket = await laboratory.hand_in(retries=0)
    async with laboratory.working_here():
        await laboratory.seen_waiting("coatcheck remote calls")
        await asyncio.to_thread(pg_server.kill)  # and with it goes the gate
        await asyncio.to_thread(pg_server.start)
        await laboratory.reconnect()
        # Who finds nobody to write to leaves the call to whoever looks next: let that be now.
        await laboratory.sql.execute("UPDATE remote_calls SET due_at = now() WHERE lease > 0")
        view = await laboratory.ended_with_nothing_left_over(ticket)
    assert (view.state, view.failures) == (State.COMPLETED, 0)
    assert list(studio.works) == [view.execution_id]


async def test_a_database_that_stays_away_when_a_job_is_to_be_parked_costs_no_attempt(
    laboratory_on_own_server: RemoteLaboratory,
    pg_server: EmbeddedPostgres,
    studio: Studio,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    laboratory = laboratory_on_own_server
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
    studio.is_silent = True
    ticket = await laboratory.hand_in(retries=0)
    async with laboratory.working_here():
        await until_true(lambda: bool(studio.works), "the remote has the work")
        await asyncio.to_thread(pg_server.stop)
        studio.give_answers()
        await until_true(lambda: in_vain >= DATABASE_ATTEMPTS, "a caller would have given up")
        await asyncio.to_thread(pg_server.start)
        await laboratory.reconnect()
        view = await laboratory.ended_with_nothing_left_over(ticket)
    assert (view.state, view.failures) == (State.COMPLETED, 0)
    assert list(studio.works) == [view.execution_id]


async def test_a_remote_that_comes_back_with_its_jobs_is_asked_again(
    laboratory: RemoteLaboratory, speaker: TtsRemote
) -> None:
    laboratory.target = target_of(speaker)
    speaker.plan(Fault("stuck_job"))
    ticket = await laboratory.hand_in(retries=0)
    async with laboratory.working_here():
        await laboratory.parked(ticket)
        await speaker.go_away()
        await eventually_async(
            lambda: laboratory.sql.fetchval("SELECT faults > 0 FROM remote_calls"),
            "somebody found the remote away",
        )
        speaker.clear_faults()
        await speaker.come_back()
        view = await laboratory.end_of(ticket)
        assert view.execution_id is not None
        speech = speaker.jobs.speech(view.execution_id).read_bytes()
        await laboratory.ended_with_nothing_left_over(ticket, speech)
    assert (view.state, view.failures, view.unreachables) == (State.COMPLETED, 0, 0)
    assert speaker.jobs.all() == [view.execution_id]
    assert speaker.seen.paths[SPAWN_PATH] == 1


async def test_a_remote_whose_answer_to_a_spawn_is_lost_has_one_job_of_it(
    laboratory: RemoteLaboratory, speaker: TtsRemote
) -> None:
    laboratory.target = target_of(speaker)
    speaker.plan(Fault("lost_answer", path=SPAWN_PATH))
    ticket = await laboratory.hand_in()
    async with laboratory.working_here():
        await laboratory.until(ticket, lambda job: job.state is State.RETRYING, "it waits")
        await laboratory.make_due(ticket)
        view = await laboratory.end_of(ticket)
        assert view.execution_id is not None
        speech = speaker.jobs.speech(view.execution_id).read_bytes()
        await laboratory.ended_with_nothing_left_over(ticket, speech)
    assert view.state is State.COMPLETED
    assert speaker.jobs.all() == [view.execution_id]
    assert (speaker.seen.jobs_made, speaker.seen.jobs_found) == (1, 1)


async def test_a_worker_that_sleeps_through_its_lease_while_it_spawns_does_no_harm(
    laboratory: RemoteLaboratory, studio: Studio
) -> None:
    studio.is_silent = True
    ticket = await laboratory.hand_in(retries=0)
    sleeper = laboratory.start_working_remotely()
    await until_true(lambda: bool(studio.works), "the remote has the work")
    sleeper.pause()
    studio.give_answers()
    await laboratory.forget_the_dead()
    async with laboratory.working_here():
        view = await laboratory.ended_with_nothing_left_over(ticket)
        assert (view.state, view.crashes, view.failures) == (State.COMPLETED, 1, 0)
        sleeper.resume()
        assert await sleeper.terminate() == 0
    assert await laboratory.ended_with_nothing_left_over(ticket) == view
    assert list(studio.works) == [view.execution_id]
    assert studio.spawns_asked_for == 2
    await invariants.stale_writes_change_nothing(laboratory, view)


async def test_what_a_worker_parked_goes_on_when_it_ends(
    laboratory: RemoteLaboratory, studio: Studio
) -> None:
    studio.at_once = False
    tickets = [await laboratory.hand_in(f"{number}") for number in range(20)]
    worker = laboratory.start_working_remotely()
    for ticket in tickets:
        await laboratory.parked(ticket)
    assert await worker.terminate() == 0
    studio.complete_all()
    async with laboratory.working_here():
        views = await laboratory.end_of_all(tickets)
    assert {view.state for view in views} == {State.COMPLETED}
    assert [view.attempts for view in views] == [1] * 20
    assert sorted(studio.works) == sorted(str(view.execution_id) for view in views)
    assert studio.spawns_asked_for == 20
    assert await laboratory.stored() == sorted(f"renders/{number}.wav" for number in range(20))


def target_of(speaker: TtsRemote) -> dict[str, object]:
    return {"kind": "remote", "adapter": "http", "url": speaker.url, "secret": "SERVICE_KEY"}
