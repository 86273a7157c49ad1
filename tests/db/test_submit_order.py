"""Statements that meet on several keys wait for each other in one order, never in a circle."""

from __future__ import annotations

import asyncio

from coatcheck.core.queries import jobs
from coatcheck.db.connection import Connection
from coatcheck.domain.ids import new_id
from coatcheck.domain.job import NewJob
from tests.db.rows import ENDPOINT, ORG

ROUNDS = 40
KEYS = [f"key {number:03}" for number in range(150)]


def keyed(round_number: int, key: str) -> NewJob:
    return NewJob(
        org=ORG,
        uuid=new_id(),
        lane="standard",
        endpoint=ENDPOINT,
        queue_key="",
        failures_max=0,
        payload=b"{}",
        idempotency_key=f"{round_number} {key}",
    )


async def test_the_same_keys_in_opposite_orders_do_not_deadlock(dsn: str) -> None:
    """The store raises DatabaseUnavailable for a deadlock; the engine's retries would hide it."""
    lines = [Connection(dsn, name=f"test {number}") for number in range(3)]
    for number in range(ROUNDS):
        forwards = [keyed(number, key) for key in KEYS]
        backwards = [keyed(number, key) for key in reversed(KEYS)]
        in_parts = [keyed(number, key) for key in reversed(KEYS)]
        created = await asyncio.gather(
            jobs.submit(lines[0], forwards),
            jobs.submit(lines[1], backwards),
            jobs.submit_atomically(lines[2], in_parts, rows_max=40),
        )
        assert sum(map(len, created)) == len(KEYS)
    for line in lines:
        await line.close()
