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
from tests.deployment import Deployment
from tests.e2e.faults import history
from tests.e2e.faults.roles import executions_of, open_gate, payload, start_worker_process

GATE = 4711
"""The advisory lock that holds a claim up."""


async def test_a_server_that_is_killed_during_a_claim_leaves_the_job_claimable(
    deployment_on_own_server: Deployment, pg_server: EmbeddedPostgres
) -> None:
    deployment = deployment_on_own_server
    await history.keep(deployment.sql)
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
    await start_worker_process(deployment)
    ticket = await deployment.engine.submit("lab.post__note", payload(deployment))
    await deployment.wait_until_blocked("coatcheck worker claim")
    await _killed_and_started(deployment, pg_server)
    await _completed_once(deployment, ticket)


async def test_a_server_that_is_killed_during_a_finish_is_handed_the_result_again(
    deployment_on_own_server: Deployment, pg_server: EmbeddedPostgres
) -> None:
    deployment = deployment_on_own_server
    await history.keep(deployment.sql)
    await start_worker_process(deployment)
    ticket = await deployment.engine.submit("lab.post__wait", payload(deployment, gate="gate"))
    await deployment.wait_for_state(ticket, State.PROCESSING)
    # A claim does not wait for the disk (docs/adr/0009): this is about one that has got there.
    await deployment.sql.execute("CHECKPOINT")
    transaction = deployment.sql.transaction()
    await transaction.start()
    await deployment.sql.execute("SELECT FROM jobs WHERE id = $1 FOR UPDATE", ticket.uuid)
    open_gate(deployment, "gate")
    await deployment.wait_until_blocked("coatcheck worker exchange")
    await _killed_and_started(deployment, pg_server)
    await _completed_once(deployment, ticket)


async def test_a_submission_whose_answer_was_lost_after_its_commit_is_one_job(
    deployment_on_own_server: Deployment,
) -> None:
    deployment = deployment_on_own_server
    await _let_commits_wait(deployment)
    submitting = asyncio.create_task(
        deployment.engine.submit("lab.post__note", payload(deployment), idempotency_key="once")
    )
    await _hang_up_after_commit(deployment, "coatcheck submit")
    ticket = await submitting
    again = await deployment.engine.submit(
        "lab.post__note", payload(deployment), idempotency_key="once"
    )

    assert ticket.created
    assert (again.id, again.created) == (ticket.id, False)
    assert await deployment.sql.fetchval("SELECT count(*) FROM jobs") == 1


async def test_a_finish_whose_answer_was_lost_after_its_commit_is_not_done_twice(
    deployment_on_own_server: Deployment,
) -> None:
    deployment = deployment_on_own_server
    await history.keep(deployment.sql)
    worker = await start_worker_process(deployment)
    ticket = await deployment.engine.submit("lab.post__wait", payload(deployment, gate="gate"))
    await deployment.wait_for_state(ticket, State.PROCESSING)
    await _let_commits_wait(deployment)
    open_gate(deployment, "gate")
    await _hang_up_after_commit(deployment, "coatcheck worker exchange")
    await _completed_once(deployment, ticket)

    assert await worker.terminate() == 0
    assert worker.said("ended")[0]["rejected"] == 0


async def _let_commits_wait(deployment: Deployment) -> None:
    """Returns when they do: each process of PostgreSQL reads its settings in its own time."""
    await deployment.sql.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
    await deployment.sql.execute("SELECT pg_reload_conf()")
    probe = await asyncpg.connect(deployment.dsn, server_settings={"application_name": "probe"})

    async def commit() -> None:
        while True:
            await probe.execute("SELECT pg_logical_emit_message(true, 'probe', '')")

    committing = asyncio.create_task(commit())
    pid = await deployment.wait_until_blocked("probe", "SyncRep")
    await deployment.sql.execute("SELECT pg_terminate_backend($1)", pid)
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, ConnectionError)):
        await committing


async def _hang_up_after_commit(deployment: Deployment, application: str) -> None:
    pid = await deployment.wait_until_blocked(application, "SyncRep")
    await deployment.sql.execute("SELECT pg_terminate_backend($1)", pid)
    await deployment.sql.execute("ALTER SYSTEM RESET synchronous_standby_names")
    await deployment.sql.execute("SELECT pg_reload_conf()")


async def _killed_and_started(deployment: Deployment, server: EmbeddedPostgres) -> None:
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)
    await deployment.reconnect()


async def _completed_once(deployment: Deployment, ticket: Ticket) -> None:
    """Completed by its first execution, once, with nothing counted against it."""
    view = await deployment.wait_for_end(ticket)
    assert (view.state, view.result) == (State.COMPLETED, b'{"attempt":1}')
    assert (view.crashes, view.failures) == (0, 0)
    transitions = await history.read(deployment.sql)
    job_id: UUID = from_text(view.id)
    assert history.completions(transitions, job_id) == 1
    assert all(transition.legal for transition in transitions)
    assert executions_of(deployment, ticket) == 1
