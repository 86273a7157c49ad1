"""What callers of batches do, in one line each."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import httpx2

from tests.deployment import Deployment
from tests.products.batches.sums import sums

JOBS = "/v1/jobs"
NDJSON = {"Content-Type": "application/x-ndjson"}
ADD = {"service": "sums", "endpoint": "/add"}

Body = dict[str, Any]


async def know_sums(deployment: Deployment) -> None:
    """Have ``sums`` known, and nobody there to work."""
    await deployment.stop_worker(await deployment.start_worker(sums))


def lines(tasks: Iterable[Any]) -> bytes:
    """A list, a task on each line."""
    return b"".join(json.dumps(task).encode() + b"\n" for task in tasks)


async def submit(
    http: httpx2.AsyncClient, tasks: Any = None, *, status: int = 201, **options: Any
) -> Body:
    """A job of JSON, for /add unless ``options`` say otherwise."""
    body = ADD | ({} if tasks is None else {"tasks": tasks}) | options
    return told(await http.post(JOBS, json=body), status)


async def submit_list(
    http: httpx2.AsyncClient, data: bytes, *, status: int = 201, **options: Any
) -> Body:
    """A job whose body is a list, for /add unless ``options`` say otherwise."""
    answer = await http.post(JOBS, params=ADD | options, content=data, headers=NDJSON)
    return told(answer, status)


async def stage(http: httpx2.AsyncClient, data: bytes) -> str:
    """The upload that a list was put to."""
    upload = told(await http.post("/v1/uploads"), 201)
    put = await http.request(
        upload["method"], upload["url"], content=data, headers=upload["headers"]
    )
    assert put.is_success, put.text
    upload_id: str = upload["upload_id"]
    return upload_id


async def end_of(http: httpx2.AsyncClient, job: Body) -> Body:
    """The job once it has ended."""
    return told(await http.get(job["urls"]["poll"], params={"wait": 60}), 200)


async def tasks_of(http: httpx2.AsyncClient, job: Body, **query: Any) -> list[Body]:
    """All tasks of a job, page by page."""
    found: list[Body] = []
    while True:
        page = told(await http.get(job["urls"]["tasks"], params=query), 200)
        found += page["items"]
        if page["next"] is None:
            return found
        query["cursor"] = page["next"]


def told(answer: httpx2.Response, status: int) -> Body:
    """The body of an answer with this status."""
    assert answer.status_code == status, answer.text
    body: Body = answer.json()
    return body


def problem(answer: httpx2.Response, status: int, code: str) -> Body:
    """The problem that a request was refused with."""
    body = told(answer, status)
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert body["code"] == code, body
    return body
