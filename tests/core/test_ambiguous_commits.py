"""The connection breaks while a submission is under way: it is sent again, and there is one job."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from coatcheck.core import Engine, Submission
from coatcheck.core.org_jobs import OrgJobRepository
from coatcheck.domain.errors import JobAlreadyEnded
from coatcheck.domain.ids import new_id
from coatcheck.domain.states import State
from coatcheck.settings import Settings
from tests.db.blocking import terminate, until_blocked
from tests.db.edge_guard import AsyncpgConnection
from tests.db.lossy_proxy import COMMIT, LossyProxy
from tests.db.rows import ENDPOINT, ORG, insert_keyed, put_job
from tests.waiting import eventually_async

FIFTY = [Submission(ENDPOINT) for _ in range(50)]
COUNT = "SELECT count(*) FROM jobs"


@pytest.fixture
async def proxy(dsn: str) -> AsyncIterator[LossyProxy]:
    async with LossyProxy.before(dsn) as passing:
        yield passing


@pytest.fixture
async def far_engine(settings: Settings, proxy: LossyProxy) -> AsyncIterator[Engine]:
    """An engine that reaches its database through the proxy."""
    async with Engine(replace(settings, database_url=proxy.dsn)) as started:
        yield started


async def until_count(connection: AsyncpgConnection, count: int) -> None:
    async def look() -> bool:
        return bool(await connection.fetchval(COUNT) == count)

    await eventually_async(look, f"there are {count} jobs")


async def test_a_submission_whose_connection_was_killed_is_sent_again(
    engine: Engine, connection: AsyncpgConnection
) -> None:
    rival = connection.transaction()
    await rival.start()
    await insert_keyed(connection, new_id(), "k")
    submission = asyncio.create_task(engine.submit(ENDPOINT, idempotency_key="k"))
    killed = await until_blocked(connection, "coatcheck submit")
    await terminate(connection, killed)
    await until_blocked(connection, "coatcheck submit", other_than=(killed,))
    await rival.rollback()
    ticket = await submission
    assert ticket.created
    assert [row["id"] for row in await connection.fetch("SELECT id FROM jobs")] == [ticket.uuid]


@pytest.mark.parametrize("key", [None, "k"])
async def test_a_submission_that_was_committed_but_not_answered_is_one_job(
    key: str | None, far_engine: Engine, proxy: LossyProxy, connection: AsyncpgConnection
) -> None:
    proxy.lose_answers(after=b"the payload is on its way")
    submission = asyncio.create_task(
        far_engine.submit(ENDPOINT, "the payload is on its way", idempotency_key=key)
    )
    await until_count(connection, 1)
    proxy.cut()
    ticket = await submission
    assert ticket.created
    assert await connection.fetchval(COUNT) == 1
    assert (await far_engine.get(ticket.id)).uuid == ticket.uuid


async def test_a_bulk_copy_that_was_committed_but_not_answered_is_there_once(
    far_engine: Engine, proxy: LossyProxy, connection: AsyncpgConnection
) -> None:
    proxy.lose_answers(after=COMMIT)
    submission = asyncio.create_task(far_engine.submit_many(FIFTY))
    await until_count(connection, 50)
    proxy.cut()
    tickets = await submission
    assert all(ticket.created for ticket in tickets)
    ids = {row["id"] for row in await connection.fetch("SELECT id FROM jobs")}
    assert ids == {ticket.uuid for ticket in tickets}


async def test_a_bulk_copy_that_commits_after_its_connection_broke_is_there_once(
    far_engine: Engine, proxy: LossyProxy, connection: AsyncpgConnection
) -> None:
    """The server goes on with what it was sent: it may commit after the client has looked."""
    await connection.execute(
        """
        CREATE FUNCTION hesitate() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            PERFORM pg_advisory_xact_lock(4711);
            RETURN NULL;
        END $$;
        CREATE CONSTRAINT TRIGGER hesitate AFTER INSERT ON queue
            DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION hesitate();
        """
    )
    await connection.execute("SELECT pg_advisory_lock(4711)")
    submission = asyncio.create_task(far_engine.submit_many(FIFTY))
    first = await until_blocked(connection, "coatcheck pool")
    proxy.cut()
    await until_blocked(connection, "coatcheck pool", other_than=(first,))
    await connection.execute("SELECT pg_advisory_unlock(4711)")
    tickets = await submission
    assert all(ticket.created for ticket in tickets)
    ids = {row["id"] for row in await connection.fetch("SELECT id FROM jobs")}
    assert ids == {ticket.uuid for ticket in tickets}


async def test_a_bulk_submission_with_keys_whose_connection_was_killed_is_sent_again(
    engine: Engine, connection: AsyncpgConnection
) -> None:
    rival = connection.transaction()
    await rival.start()
    await insert_keyed(connection, new_id(), "k1")
    submission = asyncio.create_task(
        engine.submit_many([Submission(ENDPOINT, idempotency_key=f"k{n}") for n in range(3)])
    )
    killed = await until_blocked(connection, "coatcheck pool")
    await terminate(connection, killed)
    await until_blocked(connection, "coatcheck pool", other_than=(killed,))
    await rival.rollback()
    tickets = await submission
    assert all(ticket.created for ticket in tickets)
    assert await connection.fetchval(COUNT) == 3


async def test_a_cancellation_that_was_committed_but_not_answered_is_no_error(
    far_engine: Engine, proxy: LossyProxy, connection: AsyncpgConnection
) -> None:
    ticket = await far_engine.submit(ENDPOINT)
    proxy.lose_answers(after=ticket.uuid.bytes)
    cancelling = asyncio.create_task(far_engine.cancel(ticket.id))

    async def committed() -> bool:
        return bool(
            await connection.fetchval("SELECT count(*) = 1 FROM jobs WHERE state = 'cancelled'")
        )

    await eventually_async(committed, "the job is cancelled")
    proxy.cut()
    assert (await cancelling).state is State.CANCELLED
    with pytest.raises(JobAlreadyEnded):
        await far_engine.cancel(ticket.id)


async def test_a_retry_that_was_committed_but_not_answered_is_one_job(
    far_engine: Engine, proxy: LossyProxy, connection: AsyncpgConnection
) -> None:
    failed = await put_job(connection, State.FAILED, payload=b'{"a":1}')
    jobs: OrgJobRepository = far_engine.extension(OrgJobRepository)
    old = await jobs.get(ORG, failed.uuid)
    proxy.lose_answers(after=b"the retry is on its way")
    retry = asyncio.create_task(
        jobs.retry(old, idempotency_key=None, request_id="the retry is on its way")
    )
    await until_count(connection, 2)
    proxy.cut()
    ticket = await retry
    assert ticket.created
    rows = await connection.fetch(
        "SELECT id, payload, state FROM jobs WHERE retry_of = $1", old.uuid
    )
    assert [tuple(row) for row in rows] == [(ticket.uuid, b'{"a":1}', "queued")]
    assert (await jobs.get(ORG, old.uuid)).retried_as == ticket.uuid
