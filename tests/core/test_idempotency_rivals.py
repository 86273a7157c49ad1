"""A rival transaction has the key and has not yet said whether it will keep it."""

from __future__ import annotations

import asyncio

import pytest

from coatcheck.core import Engine, Submission, Ticket
from coatcheck.domain.ids import new_id, to_text
from tests.db.blocking import until_blocked
from tests.db.edge_guard import AsyncpgConnection
from tests.db.rows import ENDPOINT, insert_keyed

KEY = "k"


async def submit_one(engine: Engine) -> Ticket:
    return await engine.submit(ENDPOINT, idempotency_key=KEY)


async def submit_in_bulk(engine: Engine) -> Ticket:
    _, ticket = await engine.submit_many(
        [Submission(ENDPOINT), Submission(ENDPOINT, idempotency_key=KEY)]
    )
    return ticket


DOORS = pytest.mark.parametrize(
    ("door", "application"),
    [(submit_one, "coatcheck submit"), (submit_in_bulk, "coatcheck pool")],
)


@DOORS
async def test_a_submission_waits_for_its_rival_and_finds_what_it_committed(
    door, application: str, engine: Engine, connection: AsyncpgConnection
) -> None:
    rival_job = new_id()
    transaction = connection.transaction()
    await transaction.start()
    await insert_keyed(connection, rival_job, KEY)
    submission = asyncio.create_task(door(engine))
    await until_blocked(connection, application)
    await transaction.commit()
    ticket = await submission
    assert (ticket.id, ticket.created) == (to_text(rival_job), False)


@DOORS
async def test_a_submission_waits_for_its_rival_and_takes_what_it_gave_up(
    door, application: str, engine: Engine, connection: AsyncpgConnection
) -> None:
    rival_job = new_id()
    transaction = connection.transaction()
    await transaction.start()
    await insert_keyed(connection, rival_job, KEY)
    submission = asyncio.create_task(door(engine))
    await until_blocked(connection, application)
    await transaction.rollback()
    ticket = await submission
    assert ticket.created
    assert ticket.uuid != rival_job
    keyed = await connection.fetch("SELECT id FROM jobs WHERE idempotency_key = $1", KEY)
    assert [row["id"] for row in keyed] == [ticket.uuid]
