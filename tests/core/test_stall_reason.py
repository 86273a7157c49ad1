"""Whether a job is stalled, as the engine's callers learn it."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from coatcheck import Engine, JobView
from coatcheck.core import explain
from coatcheck.domain.lanes import DEFAULT_POLICIES, Lane
from tests.db.edge_guard import AsyncpgConnection

ACK_SECONDS = DEFAULT_POLICIES[Lane.STANDARD].ack_seconds


async def aged(engine: Engine, connection: AsyncpgConnection, seconds: float) -> JobView:
    """A queued job that has been waiting for so long."""
    ticket = await engine.submit("docs.post__work")
    await connection.execute(
        "WITH c AS (SELECT now() - $2 * interval '1 second' AS at), aged AS ("
        " UPDATE jobs SET created_at = c.at, run_at = c.at, updated_at = c.at FROM c WHERE id = $1)"
        " UPDATE queue SET run_at = c.at FROM c WHERE id = $1",
        ticket.uuid,
        seconds,
    )
    return await engine.get(ticket.id)


async def test_a_job_that_waits_for_too_long_says_why(
    engine: Engine, connection: AsyncpgConnection
) -> None:
    view = await aged(engine, connection, ACK_SECONDS + 1)
    assert await engine.stall_reason(view) == "no_worker"


async def test_a_young_job_is_not_asked_about(
    engine: Engine, connection: AsyncpgConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A status read of a healthy job costs no second statement."""

    async def asked(*_: object) -> None:
        raise AssertionError("the database was asked")

    monkeypatch.setattr(explain, "stall_reasons", asked)
    view = await aged(engine, connection, ACK_SECONDS - 5)
    assert view.read_at - view.created_at < timedelta(seconds=ACK_SECONDS)
    assert await engine.stall_reason(view) is None
    cancelled = await engine.cancel((await aged(engine, connection, ACK_SECONDS + 1)).id)
    assert await engine.stall_reason(cancelled) is None


async def test_many_jobs_are_asked_about_together(
    engine: Engine, connection: AsyncpgConnection
) -> None:
    views = [await aged(engine, connection, ACK_SECONDS + 1) for _ in range(20)]
    reasons = await asyncio.gather(*map(engine.stall_reason, views))
    assert reasons == ["no_worker"] * 20
