"""PostgreSQL dies or hangs up in the middle of a statement, before its commit or after it.

Before: the statement is held up by a lock, seen waiting, and the server is killed. After: commits
are made to wait for a standby that does not exist, so that a backend which has committed can be
terminated before it answers.
"""

from __future__ import annotations

import asyncio
from uuid import UUID

import asyncpg
import pytest

from coatcheck import State, Ticket
from coatcheck.db.embedded import EmbeddedPostgres
from coatcheck.domain.ids import from_text
from tests.e2e.faults import history
from tests.e2e.faults.laboratory import Laboratory

GATE = 4711
"""The advisory lock that holds a claim up."""


async def test_a_server_that_is_killed_during_a_claim_leaves_the_job_claimable(
    laboratory_on_own_server: Laboratory, pg_server: EmbeddedPostgres
) -> None:
    laboratory = laboratory_on_own_server
    await history.keep(laboratory.sql)
    await laboratory.sql.execute(
        f"""
        CREATE FUNCTION wait_for_the_gate() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_advisory_xact_lock({GATE}); RETURN NEW; END $$;
        CREATE TRIGGER wait_for_the_gate BEFORE UPDATE ON jobs FOR EACH ROW
        WHEN (NEW.state = 'dispatching' AND OLD.state = 'queued')
        EXECUTE FUNCTION wait_for_the_gate()
        """
    )
    await laboratory.sql.execute("SELECT pg_advisory_lock($1)", GATE)
    await laboratory.start_working()
    ticket = await laboratory.engine.submit("lab.post__note", laboratory.payload())
    await laboratory.seen_waiting("coatcheck worker claim")
    await _killed_and_started(laboratory, pg_server)
    await _completed_once(laboratory, ticket)


async def test_a_server_that_is_killed_during_a_finish_is_handed_the_result_again(
    laboratory_on_own_server: Laboratory, pg_server: EmbeddedPostgres
) -> None:
    laboratory = laboratory_on_own_server
    await history.keep(laboratory.sql)
    await laboratory.start_working()
    ticket = await laboratory.engine.submit("lab.post__wait", laboratory.payload(gate="gate"))
    await laboratory.until_state(ticket, State.PROCESSING)
    # A claim does not wait for the disk (docs/adr/0009): this is about one that has got there.
    await laboratory.sql.execute("CHECKPOINT")
    transaction = laboratory.sql.transaction()
    await transaction.start()
    await laboratory.sql.execute("SELECT FROM jobs WHERE id = $1 FOR UPDATE", ticket.uuid)
    laboratory.open_gate("gate")
    await laboratory.seen_waiting("coatcheck worker exchange")
    await _killed_and_started(laboratory, pg_server)
    await _completed_once(laboratory, ticket)


async def test_a_submission_whose_answer_was_lost_after_its_commit_is_one_job(
    laboratory_on_own_server: Laboratory,
) -> None:
    laboratory = laboratory_on_own_server
    await _let_commits_wait(laboratory)
    submitting = asyncio.create_task(
        laboratory.engine.submit("lab.post__note", laboratory.payload(), idempotency_key="once")
    )
    await _hang_up_after_commit(laboratory, "coatcheck submit")
    ticket = await submitting
    again = await laboratory.engine.submit(
        "lab.post__note", laboratory.payload(), idempotency_key="once"
    )

    assert ticket.created
    assert (again.id, again.created) == (ticket.id, False)
    assert await laboratory.sql.fetchval("SELECT count(*) FROM jobs") == 1


async def test_a_finish_whose_answer_was_lost_after_its_commit_is_not_done_twice(
    laboratory_on_own_server: Laboratory,
) -> None:
    laboratory = laboratory_on_own_server
    await history.keep(laboratory.sql)
    worker = await laboratory.start_working()
    ticket = await laboratory.engine.submit("lab.post__wait", laboratory.payload(gate="gate"))
    await laboratory.until_state(ticket, State.PROCESSING)
    await _let_commits_wait(laboratory)
    laboratory.open_gate("gate")
    await _hang_up_after_commit(laboratory, "coatcheck worker exchange")
    await _completed_once(laboratory, ticket)

    assert await worker.terminate() == 0
    assert worker.said("ended")[0]["rejected"] == 0


async def _let_commits_wait(laboratory: Laboratory) -> None:
    """Returns when they do: each process of PostgreSQL reads its settings in its own time."""
    await laboratory.sql.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
    await laboratory.sql.execute("SELECT pg_reload_conf()")
    probe = await asyncpg.connect(laboratory.dsn, server_settings={"application_name": "probe"})

    async def commit() -> None:
        while True:
            await probe.execute("SELECT pg_logical_emit_message(true, 'probe', '')")

    committing = asyncio.create_task(commit())
    pid = await laboratory.seen_waiting("probe", "SyncRep")
    await laboratory.sql.execute("SELECT pg_terminate_backend($1)", pid)
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, ConnectionError)):
        await committing


async def _hang_up_after_commit(laboratory: Laboratory, application: str) -> None:
    pid = await laboratory.seen_waiting(application, "SyncRep")
    await laboratory.sql.execute("SELECT pg_terminate_backend($1)", pid)
    await laboratory.sql.execute("ALTER SYSTEM RESET synchronous_standby_names")
    await laboratory.sql.execute("SELECT pg_reload_conf()")


async def _killed_and_started(laboratory: Laboratory, server: EmbeddedPostgres) -> None:
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)
    await laboratory.reconnect()


async def _completed_once(laboratory: Laboratory, ticket: Ticket) -> None:
    """Completed by its first execution, once, with nothing counted against it."""
    view = await laboratory.end_of(ticket)
    assert (view.state, view.result) == (State.COMPLETED, b'{"attempt":1}')
    assert (view.crashes, view.failures) == (0, 0)
    transitions = await history.read(laboratory.sql)
    job_id: UUID = from_text(view.id)
    assert history.completions(transitions, job_id) == 1
    assert all(transition.legal for transition in transitions)
    assert laboratory.executions_of(ticket) == 1
