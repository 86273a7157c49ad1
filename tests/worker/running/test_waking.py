"""Notifications make pickup quick; polling alone makes it certain."""

from __future__ import annotations

import asyncio

import pytest

from coatcheck import Service, State, Submission
from coatcheck.domain.ids import new_id
from coatcheck.domain.job import ConcurrencyLimit
from tests.db.rows import recorded
from tests.deployment import Deployment
from tests.waiting import eventually_async, until_true


def greeter() -> Service:
    service = Service("lab")

    @service.post("/greet")
    async def greet() -> str:
        return "hello"

    return service


async def test_a_job_is_found_by_polling_when_nobody_announces_it(deployment: Deployment) -> None:
    await deployment.start_worker(greeter())
    # Its first look, at the beginning, would find it without any poll. The statement that records
    # the end of a job is the last look that the job gives rise to.
    await deployment.wait_for_end(await deployment.engine.submit("lab.post__greet"))
    # Written past the engine: no notification is ever sent.
    job_id = new_id()
    await deployment.sql.execute(
        recorded("""
        INSERT INTO jobs (org_id, id, lane, endpoint, flow, failures_max, payload)
        VALUES ('default', $1, 'standard', 'lab.post__greet', '', 0, '{}')
        """),
        job_id,
    )
    await eventually_async(
        lambda: deployment.sql.fetchval(
            "SELECT state = 'completed' FROM jobs WHERE id = $1", job_id
        ),
        "the job is completed",
    )


@pytest.mark.parametrize("held_max", [4, 100], ids=["few at a time", "many at a time"])
async def test_jobs_under_a_limit_take_the_places_of_those_that_end_without_any_poll(
    deployment: Deployment, held_max: int
) -> None:
    await deployment.engine.set_limit(ConcurrencyLimit("default", "org", "", held_max))
    tickets = await deployment.engine.submit_many([Submission("lab.post__greet")] * 10 * held_max)
    await deployment.start_worker(greeter(), poll_seconds_min=3_600.0, poll_seconds_max=3_600.0)
    views = await deployment.wait_for_ends(tickets)
    assert {view.state for view in views} == {State.COMPLETED}


async def test_a_worker_whose_listening_connection_is_killed_again_and_again_still_finds_work(
    deployment: Deployment,
) -> None:
    await deployment.start_worker(greeter())
    killed: set[int] = set()
    stop = asyncio.Event()

    async def kill_listeners() -> None:
        while not stop.is_set():
            for pid in await listeners(deployment):
                await deployment.sql.execute("SELECT pg_terminate_backend($1)", pid)
                killed.add(pid)

    killing = asyncio.create_task(kill_listeners())
    try:
        await until_true(lambda: bool(killed), "a listening connection was killed")
        tickets = [await deployment.engine.submit("lab.post__greet") for _ in range(3)]
        views = await deployment.wait_for_ends(tickets)
    finally:
        stop.set()
        await killing

    assert {view.state for view in views} == {State.COMPLETED}


async def test_a_killed_listening_connection_is_made_anew(deployment: Deployment) -> None:
    before = await listeners(deployment)
    await deployment.start_worker(greeter())
    (first,) = await listeners(deployment) - before
    await deployment.sql.execute("SELECT pg_terminate_backend($1)", first)

    async def listens_again() -> bool:
        return bool(await listeners(deployment) - before - {first})

    await eventually_async(listens_again, "the worker listens again")


async def listeners(deployment: Deployment) -> set[int]:
    """The backends of all connections that listen: the engine has one, too."""
    rows = await deployment.sql.fetch(
        """
        SELECT pid FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'coatcheck listen'
        """
    )
    return {row["pid"] for row in rows}
