"""What workers' code declares of its endpoints holds for engines that do not have the code."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from coatcheck import Engine, Lane, Service, Settings, Submission
from coatcheck.db.connection import Connection
from tests.db.blocking import processes_named, terminate
from tests.db.edge_guard import AsyncpgConnection
from tests.db.publishing import publish
from tests.waiting import eventually_async


def declared(lane: Lane, *, retries: int | None = None, keep: float | None = None) -> Service:
    docs = Service("docs")

    @docs.post("/work", lane=lane, retries=retries, keep_completed=keep)
    async def work() -> None: ...

    return docs


@pytest.fixture
async def line(dsn: str) -> AsyncIterator[Connection]:
    opened = Connection(dsn, name="test publisher")
    yield opened
    await opened.close()


async def lane_of_next(engine: Engine) -> Lane:
    ticket = await engine.submit("docs.post__work")
    return (await engine.get(ticket.id)).lane


async def test_an_engine_begins_with_what_was_published_before(
    settings: Settings, line: Connection, connection: AsyncpgConnection
) -> None:
    await publish(line, {"docs": [declared(Lane.URGENT, retries=9, keep=60).spec]})
    async with Engine(settings) as engine:
        ticket = await engine.submit("docs.post__work")
        view = await engine.get(ticket.id)
    assert (view.lane, view.failures_max) == (Lane.URGENT, 9)
    kept = await connection.fetchval(
        "SELECT keep_completed_seconds FROM jobs WHERE id = $1", ticket.uuid
    )
    assert kept == 60


async def test_many_jobs_at_once_get_what_is_declared_too(
    settings: Settings, line: Connection, connection: AsyncpgConnection
) -> None:
    await publish(line, {"docs": [declared(Lane.URGENT, retries=9, keep=60).spec]})
    async with Engine(settings) as engine:
        await engine.submit_many([Submission("docs.post__work")] * 3)
    rows = await connection.fetch(
        "SELECT lane::text, failures_max, keep_completed_seconds FROM jobs"
    )
    assert [tuple(row) for row in rows] == [("urgent", 9, 60)] * 3


async def test_a_running_engine_hears_of_changes(engine: Engine, line: Connection) -> None:
    assert await lane_of_next(engine) is Lane.STANDARD
    for lane in (Lane.BULK, Lane.URGENT):
        await publish(line, {"docs": [declared(lane).spec]})

        async def learned(expected: Lane = lane) -> bool:
            return await lane_of_next(engine) is expected

        await eventually_async(learned, f"jobs go to {lane}")


async def test_what_was_published_while_nobody_listened_is_found(
    engine: Engine, line: Connection, connection: AsyncpgConnection
) -> None:
    docs = declared(Lane.BULK)
    for pid in await processes_named(connection, "coatcheck listen"):
        await terminate(connection, pid)
    await publish(line, {"docs": [docs.spec]})

    async def learned() -> bool:
        return await lane_of_next(engine) is Lane.BULK

    await eventually_async(learned, "jobs go to bulk")


async def test_what_the_engine_was_given_goes_before_what_was_published(
    settings: Settings, line: Connection
) -> None:
    await publish(line, {"docs": [declared(Lane.URGENT).spec]})
    async with Engine(settings, [declared(Lane.BULK)]) as engine:
        assert await lane_of_next(engine) is Lane.BULK


async def test_what_a_submission_says_goes_before_both(
    settings: Settings, line: Connection
) -> None:
    await publish(line, {"docs": [declared(Lane.URGENT, retries=9).spec]})
    async with Engine(settings) as engine:
        ticket = await engine.submit("docs.post__work", lane=Lane.BULK, retries=0)
        view = await engine.get(ticket.id)
    assert (view.lane, view.failures_max) == (Lane.BULK, 0)
