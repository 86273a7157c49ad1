"""Notifications make pickup quick; polling alone makes it certain."""

from __future__ import annotations

import asyncio

from coatcheck import Service, State
from coatcheck.domain.ids import new_id
from tests.deployment import Deployment
from tests.waiting import eventually_async, until_true


def greeter() -> Service:
    service = Service("lab")

    @service.post("/greet")
    async def greet() -> str:
        return "hello"

    return service


async def test_a_job_is_found_by_polling_when_nobody_announces_it(deployment: Deployment) -> None:
    worker = await deployment.start_worker(greeter())
    counter = worker._exchange
    # Its first look, at the beginning, would find it without any poll.
    await until_true(lambda: counter.quiet and not counter._work_may_wait, "the worker has looked")
    # Written past the engine: no notification is ever sent.
    job_id = new_id()
    await deployment.sql.execute(
        """
        INSERT INTO jobs (org_id, id, lane, endpoint, flow, failures_max, payload)
        VALUES ('default', $1, 'standard', 'lab.post__greet', '', 0, '{}')
        """,
        job_id,
    )
    await eventually_async(
        lambda: deployment.sql.fetchval(
            "SELECT state = 'completed' FROM jobs WHERE id = $1", job_id
        ),
        "the job is completed",
    )


async def test_a_worker_whose_listening_connection_is_killed_again_and_again_still_finds_work(
    deployment: Deployment,
) -> None:
    worker = await deployment.start_worker(greeter())
    killed: set[int] = set()
    stop = asyncio.Event()

    async def kill_listeners() -> None:
        while not stop.is_set():
            pid = worker._database.listener.backend_pid
            if pid is not None and pid not in killed:
                await deployment.sql.execute("SELECT pg_terminate_backend($1)", pid)
                killed.add(pid)
            await asyncio.sleep(0)

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
    worker = await deployment.start_worker(greeter())
    first = worker._database.listener.backend_pid
    await deployment.sql.execute("SELECT pg_terminate_backend($1)", first)

    async def listens_again() -> bool:
        return worker._database.listener.backend_pid not in (None, first)

    await eventually_async(listens_again, "the worker listens again")
