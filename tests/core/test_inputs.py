"""Jobs that are handed in with an input: made once, recorded once, found by their key."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest

from coatcheck.blobs.keys import input_of_piece
from coatcheck.core import Engine, Ticket
from coatcheck.db.notifications import READY, NotificationListener
from coatcheck.domain.errors import JobNotFound
from coatcheck.domain.ids import new_id, to_text
from coatcheck.domain.states import State
from coatcheck.settings import Settings
from tests.db.blocking import terminate, until_blocked
from tests.db.edge_guard import AsyncpgConnection
from tests.db.input_rows import stored_input
from tests.db.lossy_proxy import LossyProxy
from tests.db.rows import ENDPOINT, connected, insert_keyed, row_of
from tests.waiting import eventually_async

COPIES = "SELECT count(*) FROM input_copies"


async def hand_in(engine: Engine, *, key: str | None = None, **changes: object) -> Ticket:
    job = new_id()
    stored = replace(stored_input(await engine.new_input_key(job)), **changes)  # type: ignore[arg-type]
    payload = {"blob": stored.blob_key}
    return await engine.submit_with_input(
        ENDPOINT, payload, stored, job_id=job, idempotency_key=key, owner="ann"
    )


async def test_an_input_is_stored_under_a_key_that_names_its_job_and_is_used_once(
    engine: Engine,
) -> None:
    job = new_id()
    keys = {await engine.new_input_key(job) for _ in range(2)}
    assert len(keys) == 2
    assert {input_of_piece(f"{key}/00000") for key in keys} == {(job, key) for key in keys}


async def test_a_job_with_an_input_can_be_read_and_tells_of_its_copies(engine: Engine) -> None:
    ticket = await hand_in(engine)
    assert ticket.created
    assert (await engine.get(ticket.id)).state is State.QUEUED
    record = await engine.input_of(ticket.id)
    assert record is not None
    assert (record.job, record.owner, len(record.copies)) == (ticket.uuid, "ann", 2)


async def test_workers_are_told_of_a_job_with_an_input(engine: Engine, dsn: str) -> None:
    heard = asyncio.Event()
    listening = NotificationListener(dsn).subscribe(
        {READY: lambda _: heard.set()}, on_gap=lambda: None
    )
    await listening.start()
    try:
        await hand_in(engine)
        async with asyncio.timeout(30):
            await heard.wait()
    finally:
        await listening.stop()


async def test_a_job_must_start_within_what_is_left_of_its_inputs_time(
    settings: Settings, connection: AsyncpgConnection
) -> None:
    async with Engine(replace(settings, archive_ttl_seconds=600)) as engine:
        ticket = await hand_in(engine, age_seconds=100.0)
        record = await engine.input_of(ticket.id)
    row = await row_of(connection, ticket.uuid)
    assert row["start_deadline"] == row["created_at"] + timedelta(seconds=500)
    assert record is not None
    assert record.copies[0].expires_at == row["start_deadline"]


async def test_racers_on_one_key_make_one_job_and_one_record(
    engine: Engine, rival_engine: Engine, connection: AsyncpgConnection
) -> None:
    tickets = await asyncio.gather(
        *(hand_in(each, key="k") for each in (engine, rival_engine) for _ in range(5))
    )
    assert sum(ticket.created for ticket in tickets) == 1
    assert len({ticket.id for ticket in tickets}) == 1
    assert not any(ticket.mismatch for ticket in tickets), "the same content, of the same operation"
    assert await connection.fetchval(COPIES) == 2


async def test_other_content_under_a_known_key_is_told_as_a_mismatch(engine: Engine) -> None:
    first = await hand_in(engine, key="k")
    second = await hand_in(engine, key="k", sha256=b"\0" * 32)
    assert (second.id, second.created, second.mismatch) == (first.id, False, True)


async def test_a_key_that_is_free_again_when_its_job_is_looked_for_is_taken_with_the_input(
    engine: Engine, connection: AsyncpgConnection, dsn: str
) -> None:
    rival = connection.transaction()
    await rival.start()
    await insert_keyed(connection, new_id(), "k")
    submission = asyncio.create_task(hand_in(engine, key="k"))
    await until_blocked(connection, "coatcheck pool")

    async with connected(dsn) as pruning:
        await pruning.execute("SET application_name = 'pruning'")
        async with pruning.transaction():
            # Next in line after the submission's statement, before its look for the job.
            locked = asyncio.create_task(pruning.execute("LOCK TABLE jobs"))
            await until_blocked(connection, "pruning")
            await rival.commit()
            await locked
            await pruning.execute("DELETE FROM jobs")
    ticket = await submission
    assert ticket.created
    assert await connection.fetchval("SELECT id FROM jobs") == ticket.uuid
    assert await connection.fetchval(COPIES) == 2


async def test_a_submission_whose_connection_was_killed_is_sent_again(
    engine: Engine, connection: AsyncpgConnection
) -> None:
    rival = connection.transaction()
    await rival.start()
    await insert_keyed(connection, new_id(), "k")
    submission = asyncio.create_task(hand_in(engine, key="k"))
    killed = await until_blocked(connection, "coatcheck pool")
    await terminate(connection, killed)
    await until_blocked(connection, "coatcheck pool", other_than=(killed,))
    await rival.rollback()
    assert (await submission).created
    assert await connection.fetchval(COPIES) == 2


@pytest.fixture
async def proxy(dsn: str) -> AsyncIterator[LossyProxy]:
    async with LossyProxy.before(dsn) as passing:
        yield passing


async def test_a_submission_that_was_committed_but_not_answered_is_one_job_with_one_record(
    settings: Settings, proxy: LossyProxy, connection: AsyncpgConnection
) -> None:
    async with Engine(replace(settings, database_url=proxy.dsn)) as far_engine:
        job = new_id()
        key = await far_engine.new_input_key(job)
        proxy.lose_answers(after=b"the payload is on its way")
        submission = asyncio.create_task(
            far_engine.submit_with_input(
                ENDPOINT,
                "the payload is on its way",
                stored_input(key),
                job_id=job,
                idempotency_key="k",
            )
        )

        async def is_there() -> bool:
            return bool(await connection.fetchval("SELECT count(*) = 1 FROM jobs"))

        await eventually_async(is_there, "the job is committed")
        proxy.cut()
        ticket = await submission
    assert (ticket.uuid, ticket.created) == (job, True)
    assert await connection.fetchval(COPIES) == 2


async def test_a_job_is_found_by_its_key_in_its_organisation(engine: Engine) -> None:
    ticket = await hand_in(engine, key="k")
    found = await engine.find("k")
    assert found is not None
    assert (found.id, found.state, found.owner) == (ticket.id, State.QUEUED, "ann")
    assert await engine.find("other") is None
    assert await engine.find("k", org="other") is None


async def test_a_job_without_an_input_and_a_foreign_one_have_no_record(engine: Engine) -> None:
    plain = await engine.submit(ENDPOINT)
    ours = await hand_in(engine)
    assert await engine.input_of(plain.id) is None
    assert await engine.input_of(ours.id, org="other") is None
    assert await engine.input_of(to_text(new_id())) is None
    with pytest.raises(JobNotFound):
        await engine.input_of("not an id")
