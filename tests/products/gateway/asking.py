"""What callers of the gateway do, in one line each."""

from __future__ import annotations

from typing import Any

import httpx2

from tests.deployment import Deployment
from tests.products.gateway import paths
from tests.products.gateway.docs_service import docs


async def hand_in(
    http: httpx2.AsyncClient, path: str, body: Any = None, **headers: str
) -> dict[str, Any]:
    """The ticket of a job of ``docs``. Headers are spelt with underscores."""
    answer = await http.post(
        paths.submit(path), json={} if body is None else body, headers=spelt(headers)
    )
    assert answer.status_code == 202, answer.text
    ticket: dict[str, Any] = answer.json()
    return ticket


async def end_of(http: httpx2.AsyncClient, ticket: dict[str, Any]) -> dict[str, Any]:
    """The job once it has ended."""
    answer = await http.get(ticket["poll_url"], params={"wait": 30})
    assert answer.status_code == 200, answer.text
    job: dict[str, Any] = answer.json()
    assert job["terminal"]
    return job


async def know_docs(deployment: Deployment) -> None:
    """Have ``docs`` known, and nobody there to work."""
    worker = await deployment.start_worker(docs)
    await deployment.stop_worker(worker)


def spelt(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


def problem(answer: httpx2.Response, status: int, code: str) -> dict[str, Any]:
    """The problem that an answer is, if it is this one."""
    assert (answer.status_code, answer.headers["content-type"]) == (
        status,
        "application/problem+json",
    ), answer.text
    found: dict[str, Any] = answer.json()
    assert (found["status"], found["code"]) == (status, code)
    return found


def without_time(answer: httpx2.Response) -> dict[str, Any]:
    return {**answer.json(), "timestamp": ""}
