"""A handler returns, and its value is the job's result, wherever the handler ran."""

from __future__ import annotations

import json
import os
import threading

from coatcheck import Job, Service, State
from tests.deployment import Deployment
from tests.worker.running.isolated_handlers import apart


async def test_an_async_handler_completes_its_job(deployment: Deployment) -> None:
    service = Service("lab")

    @service.post("/greet")
    async def greet(job: Job, name: str) -> dict[str, object]:
        return {"hello": name, "id": job.id, "attempt": job.attempt}

    await deployment.start_worker(service)
    ticket = await deployment.engine.submit("lab.post__greet", {"name": "Ada"})
    view = await deployment.wait_for_end(ticket)

    assert view.state is State.COMPLETED
    assert view.result is not None
    assert json.loads(view.result) == {"hello": "Ada", "id": ticket.id, "attempt": 1}


async def test_a_plain_function_runs_in_a_thread_of_its_own(deployment: Deployment) -> None:
    service = Service("lab")

    @service.post("/where")
    def where() -> str:
        return threading.current_thread().name

    await deployment.start_worker(service)
    view = await deployment.wait_for_end(await deployment.engine.submit("lab.post__where"))

    assert view.result is not None
    assert json.loads(view.result) != threading.current_thread().name


async def test_an_isolated_handler_runs_in_a_process_of_its_own(deployment: Deployment) -> None:
    await deployment.start_worker(apart)
    view = await deployment.wait_for_end(
        await deployment.engine.submit("apart.post__double", {"number": 21})
    )

    assert view.result is not None
    result = json.loads(view.result)
    assert result["doubled"] == 42
    assert result["pid"] != os.getpid()


async def test_a_finished_job_keeps_its_result_and_its_times_but_not_its_payload(
    deployment: Deployment,
) -> None:
    service = Service("lab")

    @service.post("/keep")
    async def keep(secret: str) -> int:
        return len(secret)

    await deployment.start_worker(service)
    ticket = await deployment.engine.submit("lab.post__keep", {"secret": "a canary"})
    view = await deployment.wait_for_end(ticket)

    assert view.result == b"8"
    assert view.created_at <= view.dispatched_at <= view.finished_at < view.expires_at  # type: ignore[operator]
    assert view.started_at is not None
    assert (view.failures, view.crashes, view.interruptions, view.unreachables) == (0, 0, 0, 0)
    row = await deployment.sql.fetchrow(
        "SELECT payload, lease FROM jobs WHERE id = $1", ticket.uuid
    )
    assert tuple(row) == (None, None)


async def test_many_short_jobs_each_run_exactly_once(deployment: Deployment) -> None:
    service = Service("lab")
    ran: list[int] = []

    @service.post("/count")
    async def count(number: int) -> int:
        ran.append(number)
        return number

    await deployment.start_worker(service)
    tickets = [
        await deployment.engine.submit("lab.post__count", {"number": number})
        for number in range(300)
    ]
    views = await deployment.wait_for_ends(tickets)

    assert sorted(ran) == list(range(300))
    assert [view.result for view in views] == [str(number).encode() for number in range(300)]
