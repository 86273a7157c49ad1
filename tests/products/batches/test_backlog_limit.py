"""The tasks of a batch count against its organisation's backlog limit."""

from __future__ import annotations

import asyncpg
import httpx2
import pytest

from tests.deployment import Deployment, bearer
from tests.products.batches.asking import (
    JOBS,
    NDJSON,
    end_of,
    know_sums,
    lines,
    problem,
    stage,
    submit,
    told,
)
from tests.products.batches.sums import sums
from tests.waiting import eventually_async

ADD = {"service": "sums", "endpoint": "/add"}
LIMIT = 10
MANY = 25


@pytest.fixture
async def small(deployment: Deployment) -> httpx2.AsyncClient:
    """A client of an organisation that may have few jobs waiting. Nobody works."""
    await know_sums(deployment)
    await deployment.create_org("small", backlog_max=LIMIT)
    key = await deployment.create_key("small")
    deployment.http.headers.update(bearer(key))
    return deployment.http


async def waiting(dsn: str) -> int:
    connection = await asyncpg.connect(dsn)
    try:
        rows = await connection.fetchval(
            "SELECT count(*) FROM jobs WHERE org_id = 'small' AND state = 'queued'"
            " AND run_id IS NOT NULL"
        )
        return int(rows)
    finally:
        await connection.close()


async def stored_batches(http: httpx2.AsyncClient) -> int:
    return len(told(await http.get(JOBS), 200)["items"])


async def test_a_list_that_is_written_at_once_is_refused_whole(
    small: httpx2.AsyncClient, dsn: str
) -> None:
    over = await small.post(JOBS, json=ADD | {"tasks": [{"a": n} for n in range(LIMIT + 1)]})
    refused = problem(over, 429, "queue_full")
    assert str(LIMIT) in refused["detail"]
    assert int(over.headers["retry-after"]) >= 1
    assert (await stored_batches(small), await waiting(dsn)) == (0, 0)


@pytest.mark.parametrize("form", ["inline", "body"])
async def test_a_list_that_a_worker_would_take_in_is_refused_where_it_can_be_counted(
    small: httpx2.AsyncClient, dsn: str, form: str
) -> None:
    tasks = [{"a": n} for n in range(5_000)]
    if form == "inline":
        over = await small.post(JOBS, json=ADD | {"tasks": tasks, "async": True})
    else:
        over = await small.post(JOBS, params=ADD, content=lines(tasks), headers=NDJSON)
    problem(over, 429, "queue_full")
    assert (await stored_batches(small), await waiting(dsn)) == (0, 0)


async def test_tasks_that_wait_leave_room_for_the_rest_only(small: httpx2.AsyncClient) -> None:
    await submit(small, [{"a": n} for n in range(LIMIT - 3)])
    problem(
        await small.post(JOBS, json=ADD | {"tasks": [{"a": n} for n in range(4)]}),
        429,
        "queue_full",
    )
    await submit(small, [{"a": n} for n in range(3)])
    problem(await small.post(JOBS, json=ADD | {"tasks": [{"a": 1}]}), 429, "queue_full")


async def test_an_open_job_takes_no_more_tasks_than_there_is_room_for(
    small: httpx2.AsyncClient, dsn: str
) -> None:
    job = await submit(small, type="open", status=202)
    over = await small.post(
        job["urls"]["tasks"], json={"tasks": [{"a": n} for n in range(LIMIT + 1)]}
    )
    problem(over, 429, "queue_full")
    assert await waiting(dsn) == 0
    some = await small.post(job["urls"]["tasks"], json={"tasks": [{"a": n} for n in range(5)]})
    told(some, 201)
    assert await waiting(dsn) == 5


async def ingested(http: httpx2.AsyncClient, job: dict[str, object], tasks: int) -> None:
    """Return when so many tasks of a list were taken in."""

    async def are_in() -> bool:
        urls = job["urls"]
        assert isinstance(urls, dict)
        shown = told(await http.get(urls["poll"]), 200)
        return int(shown["counts"]["total"]) >= tasks

    await eventually_async(are_in, f"{tasks} tasks were taken in")


async def paused(dsn: str) -> str:
    """What the job that takes a list in says of its pause, once it has paused."""
    connection = await asyncpg.connect(dsn)

    async def note() -> str | None:
        said: str | None = await connection.fetchval(
            "SELECT error_message FROM jobs WHERE org_id = 'small'"
            " AND endpoint LIKE 'batches.%' AND state = 'retrying' AND failures = 0"
        )
        return said

    try:
        return str(await eventually_async(note, "the list is taken in no further"))
    finally:
        await connection.close()


async def test_a_staged_list_is_taken_in_as_far_as_there_is_room_and_then_on(
    deployment: Deployment, small: httpx2.AsyncClient, dsn: str
) -> None:
    upload = await stage(small, lines({"a": n} for n in range(MANY)))
    await deployment.start_batches_worker()
    job = told(await small.post(JOBS, json=ADD | {"source": {"upload_id": upload}}), 202)
    await ingested(small, job, LIMIT)
    assert f"{LIMIT} waiting jobs" in await paused(dsn)
    assert await waiting(dsn) == LIMIT
    other = (await deployment.start_server()).http  # which has counted nothing yet
    auth = {"Authorization": small.headers["Authorization"]}
    over = await other.post(JOBS, json=ADD | {"tasks": [{"a": 1}]}, headers=auth)
    problem(over, 429, "queue_full")

    deployment.start_maintenance()
    await deployment.start_worker(sums)
    ended = await end_of(small, job)
    assert (ended["status"], ended["counts"]["succeeded"]) == ("completed", MANY)


@pytest.mark.parametrize("selection", [None, {"filter": {"status": ["succeeded"]}}])
async def test_a_rerun_is_taken_in_as_far_as_there_is_room_and_then_on(
    deployment: Deployment, small: httpx2.AsyncClient, dsn: str, selection: dict[str, object] | None
) -> None:
    upload = await stage(small, lines({"a": n} for n in range(MANY)))
    await deployment.start_batches_worker()
    deployment.start_maintenance()
    worker = await deployment.start_worker(sums)
    job = told(await small.post(JOBS, json=ADD | {"source": {"upload_id": upload}}), 202)
    assert (await end_of(small, job))["counts"]["total"] == MANY
    await deployment.stop_worker(worker)

    again = await small.post(f"{job['urls']['poll']}/rerun", json=selection or {})
    await ingested(small, told(again, 202), LIMIT)
    await paused(dsn)
    assert await waiting(dsn) == LIMIT

    await deployment.start_worker(sums)
    ended = await end_of(small, job)
    assert (ended["status"], ended["counts"]["succeeded"]) == ("completed", MANY)
