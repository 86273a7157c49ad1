"""Streams of events whose database is lost in the middle of a read: they end in good order.

A statement that was under way when its connection broke has another error than one that was never
sent. To who only reads, both say the same: connect again, and go on.
"""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from coatcheck.http import event_stream
from tests.deployment import Deployment
from tests.products.batches.asking import know_sums, submit
from tests.products.gateway.asking import hand_in, know_docs
from tests.products.gateway.sse import Event, EventReader, following

_TERMINATE_WHO_WAITS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have streams look again and again, though nothing changes."""
    monkeypatch.setattr(event_stream, "KEEP_ALIVE_SECONDS", 0.05)


async def test_a_stream_of_a_job_ends_with_the_hint_to_reconnect(
    deployment: Deployment, dsn: str
) -> None:
    await know_docs(deployment)
    ticket = await hand_in(deployment.http, "/process")
    async with following(deployment.http, ticket["events_url"]) as stream:
        await stream.until("state")
        rest = await _rest_while_reads_break(stream, dsn, "jobs")
    assert rest[-1].name == "reconnect"


async def test_a_stream_of_a_batch_ends_with_the_hint_to_reconnect(
    deployment: Deployment, dsn: str
) -> None:
    await know_sums(deployment)
    batch = await submit(deployment.http, type="open", status=202)
    async with following(deployment.http, batch["urls"]["events"]) as stream:
        await stream.until("state")
        rest = await _rest_while_reads_break(stream, dsn, "batches")
    assert rest[-1].name == "reconnect"


async def _rest_while_reads_break(stream: EventReader, dsn: str, table: str) -> list[Event]:
    """What a stream says while every statement that reads ``table`` loses its connection."""
    rival, reaper = await asyncpg.connect(dsn), await asyncpg.connect(dsn)
    try:
        async with rival.transaction():
            await rival.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
            rest = asyncio.create_task(stream.rest())
            while not rest.done():
                await reaper.execute(_TERMINATE_WHO_WAITS)
                await asyncio.wait([rest], timeout=0.02)
            return rest.result()
    finally:
        await rival.close()
        await reaper.close()
