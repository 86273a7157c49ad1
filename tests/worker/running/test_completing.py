"""A handler returns, and its value is the job's result, wherever the handler ran."""

from __future__ import annotations

import json
import os
import threading

from coatcheck import Job, Service, State
from tests.worker.running.isolated_handlers import apart
from tests.worker.workshop import Workshop


async def test_an_async_handler_completes_its_job(workshop: Workshop) -> None:
    service = Service("lab")

    @service.post("/greet")
    async def greet(job: Job, name: str) -> dict[str, object]:
        return {"hello": name, "id": job.id, "attempt": job.attempt}

    await workshop.start_worker(service)
    ticket = await workshop.engine.submit("lab.post__greet", {"name": "Ada"})
    view = await workshop.end_of(ticket)

    assert view.state is State.COMPLETED
    assert view.result is not None
    assert json.loads(view.result) == {"hello": "Ada", "id": ticket.id, "attempt": 1}


async def test_a_plain_function_runs_in_a_thread_of_its_own(workshop: Workshop) -> None:
    service = Service("lab")

    @service.post("/where")
    def where() -> str:
        return threading.current_thread().name

    await workshop.start_worker(service)
    view = await workshop.end_of(await workshop.engine.submit("lab.post__where"))

    assert view.result is not None
    assert json.loads(view.result) != threading.current_thread().name


async def test_an_isolated_handler_runs_in_a_process_of_its_own(workshop: Workshop) -> None:
    await workshop.start_worker(apart)
    view = await workshop.end_of(await workshop.engine.submit("apart.post__double", {"number": 21}))

    assert view.result is not None
    result = json.loads(view.result)
    assert result["doubled"] == 42
    assert result["pid"] != os.getpid()


async def test_a_finished_job_keeps_its_result_and_its_times_but_not_its_payload(
    workshop: Workshop,
) -> None:
    service = Service("lab")

    @service.post("/keep")
    async def keep(secret: str) -> int:
        return len(secret)

    await workshop.start_worker(service)
    ticket = await workshop.engine.submit("lab.post__keep", {"secret": "a canary"})
    view = await workshop.end_of(ticket)

    assert view.result == b"8"
    assert view.created_at <= view.dispatched_at <= view.finished_at < view.expires_at  # type: ignore[operator]
    assert view.started_at is not None
    assert (view.failures, view.crashes, view.interruptions, view.unreachables) == (0, 0, 0, 0)
    row = await workshop.sql.fetchrow("SELECT payload, lease FROM jobs WHERE id = $1", ticket.uuid)
    assert tuple(row) == (None, None)


async def test_many_short_jobs_each_run_exactly_once(workshop: Workshop) -> None:
    service = Service("lab")
    ran: list[int] = []

    @service.post("/count")
    async def count(number: int) -> int:
        ran.append(number)
        return number

    await workshop.start_worker(service)
    tickets = [
        await workshop.engine.submit("lab.post__count", {"number": number}) for number in range(300)
    ]
    views = await workshop.end_of_all(tickets)

    assert sorted(ran) == list(range(300))
    assert [view.result for view in views] == [str(number).encode() for number in range(300)]
