"""Batches whose tasks are done by an http upstream: each task is the body of a request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.deployment import Deployment
from tests.egress.upstream_server import Request, UpstreamServer, plain, upstream_server
from tests.products.batches.asking import (
    JOBS,
    end_of,
    lines,
    problem,
    submit,
    submit_list,
    tasks_of,
    told,
)
from tests.products.gateway import paths

ASK = {"service": "asking", "endpoint": "/ask"}


async def echo(request: Request, writer: asyncio.StreamWriter) -> None:
    """What was asked, as the answer."""
    said = json.loads(request.body)
    headers = (("Content-Type", "application/json"),)
    if said == "fail":
        await plain(b"no", "400 Bad Request")(request, writer)
    else:
        await plain(b'{"said": ' + request.body + b"}", headers=headers)(request, writer)


@pytest.fixture
async def upstream() -> AsyncIterator[UpstreamServer]:
    async with upstream_server(echo) as server:
        yield server


@pytest.fixture
async def asking(working_deployment: Deployment, upstream: UpstreamServer) -> Deployment:
    """A deployment with a service of its organisation's own, and a worker that calls it."""
    target = {"type": "http", "url": upstream.url("/base"), "headers": {"X-Secret": "hush"}}
    endpoints: list[dict[str, Any]] = [
        {"method": "POST", "path": "/ask", "target": target, "retries": 0},
        {"method": "POST", "path": "/ask/{topic}", "target": target},
    ]
    document = {"versions": {"1": {"endpoints": endpoints}}}
    answer = await working_deployment.http.put(paths.hosted("asking"), json=document)
    assert answer.status_code == 200, answer.text
    await working_deployment.start_gateway_worker()
    return working_deployment


async def test_each_task_is_the_body_of_a_request(
    asking: Deployment, upstream: UpstreamServer
) -> None:
    http = asking.http
    tasks = [{"custom_id": "x", "input": {"q": 1.0}}, "plain text", None, "fail"]
    job = await end_of(http, await submit(http, tasks, **ASK))
    assert (job["counts"]["succeeded"], job["counts"]["failed"]) == (3, 1)
    named, text, nothing, failed = await tasks_of(http, job)
    assert (named["custom_id"], named["result"]) == ("x", {"said": {"q": 1.0}})
    assert text["result"] == {"said": "plain text"}
    assert nothing["result"] == {"said": None}
    assert failed["status"] == "failed"
    assert {request.target for request in upstream.requests} == {"/base/ask"}
    assert all(request.header("x-secret") == "hush" for request in upstream.requests)
    assert all(
        request.header("content-type") == "application/json" for request in upstream.requests
    )


async def test_a_task_shows_its_input_and_none_of_the_secrets_around_it(asking: Deployment) -> None:
    http = asking.http
    job = await end_of(http, await submit(http, [{"q": 1}], **ASK))
    (task,) = await tasks_of(http, job)
    whole = await http.get(task["urls"]["poll"])
    assert told(whole, 200)["input"] == {"q": 1}
    assert "hush" not in whole.text
    assert (await http.get(task["urls"]["result"])).json() == {"said": {"q": 1}}


async def test_a_long_list_is_framed_by_the_worker_that_takes_it_in(asking: Deployment) -> None:
    http = asking.http
    data = lines(range(1_100))
    job = await end_of(http, await submit_list(http, data, status=202, **ASK))
    assert job["counts"]["succeeded"] == 1_100
    (last,) = (await tasks_of(http, job, limit=200))[-1:]
    assert last["result"] == {"said": 1_099}


async def test_a_path_with_parameters_cannot_be_filled_by_a_task(asking: Deployment) -> None:
    body = ASK | {"endpoint": "/ask/{topic}", "tasks": [1]}
    refused = problem(await asking.http.post(JOBS, json=body), 422, "invalid_input")
    assert refused["details"][0]["field"] == "endpoint"
