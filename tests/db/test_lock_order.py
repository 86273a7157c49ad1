"""What a worker sends about its running jobs locks them in one order, and so never deadlocks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from coatcheck.core.queries import leases, reports
from coatcheck.db.connection import PINNED_PLANS, Connection
from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.states import State
from tests.db.blocking import until_blocked
from tests.db.edge_guard import AsyncpgConnection
from tests.db.rows import connected, put_job

JOBS = 5
Send = Callable[[Connection, Sequence[ClaimedJob]], Awaitable[Any]]


def add_events(line: Connection, jobs: Sequence[ClaimedJob]) -> Awaitable[Any]:
    return reports.add_events(line, [(job, "json", b"{}") for job in jobs], write_id=1)


def mark_started(line: Connection, jobs: Sequence[ClaimedJob]) -> Awaitable[Any]:
    return leases.mark_started(line, [(job, 0.0) for job in jobs])


def set_progress(line: Connection, jobs: Sequence[ClaimedJob]) -> Awaitable[Any]:
    return reports.set_progress(line, [(job, 0.5, None) for job in jobs])


@pytest.mark.parametrize("send", [add_events, mark_started, set_progress])
async def test_jobs_are_locked_in_the_order_of_their_keys(
    dsn: str, connection: AsyncpgConnection, send: Send
) -> None:
    """Whoever waits for the last one holds all before it, in whatever order they were named."""
    jobs = [await put_job(connection, State.DISPATCHING) for _ in range(JOBS)]
    jobs.sort(key=lambda job: job.uuid.int)
    line = Connection(dsn, name="reversed", server_settings=PINNED_PLANS)
    async with connected(dsn) as other:
        async with connection.transaction():
            await connection.execute("SELECT FROM jobs WHERE id = $1 FOR UPDATE", jobs[-1].uuid)
            sending = asyncio.ensure_future(send(line, jobs[::-1]))
            await until_blocked(other, "coatcheck reversed")
            free = await other.fetch("SELECT id FROM jobs FOR UPDATE SKIP LOCKED")
            assert free == []
        await sending
    await line.close()
