"""Jobs that are refused, each with its reason."""

from __future__ import annotations

import gzip
from typing import Any

import pytest

from tests.deployment import Deployment
from tests.products.batches.asking import ADD, JOBS, NDJSON, problem, told
from tests.products.gateway.tokens import MACHINES, token

pytestmark = pytest.mark.asyncio(loop_scope="module")

JSON = {"Content-Type": "application/json"}
TASKS = ADD | {"tasks": [{"a": 1}]}


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"tasks": []}, "tasks"),
        ({"tasks": {}}, "tasks"),
        ({"tasks": None}, "tasks"),
        ({"source": {"upload_id": "0" * 26}}, "source"),
        ({"tasks": None, "source": {"upload_id": "short"}}, "source.upload_id"),
        ({"tasks": None, "source": {}}, "source"),
        ({"service": 1}, "service"),
        ({"service": "no service"}, "service"),
        ({"endpoint": ""}, "endpoint"),
        ({"version": 0}, "version"),
        ({"type": "ajar"}, "type"),
        ({"async": "yes"}, "async"),
        ({"lane": "slow"}, "lane"),
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": 1.5}, "concurrency"),
        ({"rate": {"per_second": 0}}, "rate.per_second"),
        ({"rate": {}}, "rate"),
        ({"rate": {"key": "a"}}, "rate"),
        ({"rate": {"key_per_second": 1}}, "rate.key"),
        ({"webhook_events": ["completed"]}, "webhook_events"),
        ({"webhook_url": "https://127.0.0.1/", "webhook_events": ["started"]}, "webhook_events[0]"),
        ({"metadata": [1]}, "metadata"),
        ({"metadata": {"x": "y" * 16_384}}, "metadata"),
        ({"keep_seconds": -1}, "keep_seconds"),
        ({"retries": 1_001}, "retries"),
    ],
)
async def test_a_field_that_does_not_fit_is_named(
    shared: Deployment, wrong: dict[str, Any], field: str
) -> None:
    answer = await shared.http.post(JOBS, json=TASKS | wrong)
    refused = problem(answer, 422, "invalid_input")
    assert refused["details"][0]["field"] == field


@pytest.mark.parametrize(
    "unknown", [{"task": 1}, {"rate": {"per_minute": 1}}, {"source": {"url": "x"}}]
)
async def test_a_field_that_would_be_lost_is_refused(
    shared: Deployment, unknown: dict[str, Any]
) -> None:
    problem(await shared.http.post(JOBS, json=TASKS | unknown), 400, "invalid_parameter")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"service":"sums","endpoint":"/add","tasks":[NaN]}',
        b'{"service":"sums","endpoint":"/add","tasks":["\\u0000"]}',
        b'{"service":"sums","endpoint":"/add","tasks":[' + b"[" * 40 + b"]" * 40 + b"]}",
        b'{"service":"sums","endpoint":"/add","tasks":["\xff"]}',
    ],
)
async def test_a_body_that_is_not_json_is_refused(shared: Deployment, body: bytes) -> None:
    problem(await shared.http.post(JOBS, content=body, headers=JSON), 400, "invalid_body")


async def test_a_body_of_json_over_a_mebibyte_is_refused(shared: Deployment) -> None:
    answer = await shared.http.post(JOBS, json=ADD | {"tasks": ["x" * 1024 * 1024]})
    problem(answer, 413, "body_too_large")


@pytest.mark.parametrize("media_type", ["text/csv", "application/xml", "text/plain"])
async def test_a_body_of_another_type_is_refused(shared: Deployment, media_type: str) -> None:
    answer = await shared.http.post(JOBS, content=b"1\n", headers={"Content-Type": media_type})
    refusal = problem(answer, 415, "unsupported_media_type")
    assert "`Content-Type: application/x-ndjson`" in refusal["detail"]


async def test_a_list_of_another_coding_than_gzip_is_refused(shared: Deployment) -> None:
    answer = await shared.http.post(
        JOBS, params=ADD, content=b"1\n", headers=NDJSON | {"Content-Encoding": "zstd"}
    )
    problem(answer, 415, "compressed_body")
    cut = await shared.http.post(
        JOBS,
        params=ADD,
        content=gzip.compress(b'{"a": 1}\n')[:-2],
        headers=NDJSON | {"Content-Encoding": "gzip"},
    )
    problem(cut, 400, "invalid_body")


async def test_a_gzip_list_is_a_list(shared: Deployment) -> None:
    answer = await shared.http.post(
        JOBS,
        params=ADD,
        content=gzip.compress(b'{"a": 1}\n{"a": 2}\n'),
        headers=NDJSON | {"Content-Encoding": "gzip"},
    )
    assert answer.status_code == 201, answer.text
    assert answer.json()["counts"]["total"] == 2


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"service": "sums"}, "endpoint"),
        ({"endpoint": "/add"}, "service"),
        (ADD | {"version": "x"}, "version"),
        (ADD | {"async": "maybe"}, "async"),
        (ADD | {"concurrency": "0"}, "concurrency"),
        (ADD | {"rate_per_second": "fast"}, "rate_per_second"),
        (ADD | {"rate_key_per_second": "0"}, "rate_key_per_second"),
        (ADD | {"metadata": "{"}, "metadata"),
        (ADD | {"lane": "slow"}, "lane"),
        (ADD | {"webhook_events": "started", "webhook_url": "https://x"}, "webhook_events"),
        (ADD | {"tasks": "[]"}, "tasks"),
    ],
)
async def test_a_wrong_option_of_a_list_is_named(
    shared: Deployment, query: dict[str, str], field: str
) -> None:
    answer = await shared.http.post(JOBS, params=query, content=b"1\n", headers=NDJSON)
    refused = problem(answer, 400, "invalid_parameter")
    assert refused["details"][0]["field"] == field


async def test_options_of_a_list_count_as_those_of_json_do(shared: Deployment) -> None:
    query = ADD | {
        "version": "1",
        "lane": "standard",
        "concurrency": "2",
        "rate_per_second": "1.5",
        "rate_key": "a",
        "rate_key_per_second": "0.5",
        "webhook_url": "https://127.0.0.1/hook",
        "webhook_events": "completed,task.failed",
        "metadata": '{"n": 1.0}',
        "keep_seconds": "60",
        "retries": "0",
    }
    answer = await shared.http.post(JOBS, params=query, content=b'{"a":1}\n', headers=NDJSON)
    job = told(answer, 201)
    assert (job["lane"], job["concurrency"], job["metadata"]) == ("standard", 2, {"n": 1.0})
    assert job["rate"] == {"per_second": 1.5, "key": "a", "key_per_second": 0.5}
    assert job["webhook_events"] == ["completed", "task.failed"]


async def test_options_in_the_query_of_a_json_body_are_refused(shared: Deployment) -> None:
    answer = await shared.http.post(JOBS, params={"concurrency": "1"}, json=TASKS)
    problem(answer, 400, "invalid_parameter")


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"service": "nobody"}, "no such service"),
        ({"version": 7}, "no such version; it has 1"),
        ({"endpoint": "/nothing"}, "/add (post__add)"),
        ({"endpoint": "/greet/you"}, "/greet/{name}"),
        ({"service": "batches", "endpoint": "/ingest"}, "no such service"),
    ],
)
async def test_an_endpoint_that_is_not_there_is_404_with_what_there_is(
    shared: Deployment, wrong: dict[str, Any], named: str
) -> None:
    refused = problem(await shared.http.post(JOBS, json=TASKS | wrong), 404, "not_found")
    assert named in refused["detail"]


async def test_an_endpoint_that_only_takes_calls_is_refused(shared: Deployment) -> None:
    answer = await shared.http.post(JOBS, json=TASKS | {"endpoint": "/now"})
    problem(answer, 400, "not_async_eligible")


async def test_a_path_of_several_methods_wants_the_endpoints_key(shared: Deployment) -> None:
    refused = problem(
        await shared.http.post(JOBS, json=TASKS | {"endpoint": "/both"}), 422, "invalid_input"
    )
    assert "get__both" in refused["detail"]
    told(await shared.http.post(JOBS, json=TASKS | {"endpoint": "put__both"}), 201)


@pytest.mark.parametrize(
    "url",
    ["http://example.com/", "https://169.254.169.254/", "https://user:pass@example.com/", "x"],
)
async def test_a_webhook_that_may_not_be_called_is_refused(shared: Deployment, url: str) -> None:
    answer = await shared.http.post(JOBS, json=TASKS | {"webhook_url": url})
    assert "webhook_url" in problem(answer, 422, "url_forbidden")["detail"]


async def test_an_endpoint_for_service_tokens_wants_one(shared: Deployment) -> None:
    http, body = shared.http, TASKS | {"endpoint": "/tokens"}
    problem(await http.post(JOBS, json=body), 401, "unauthenticated")
    machine = token(MACHINES, app="reports", scope="submit read")
    job = told(await http.post(JOBS, json=body, headers=machine), 201)
    assert (await http.get(job["urls"]["poll"], headers=machine)).status_code == 200
    other = token(MACHINES, app="others", scope="submit read")
    problem(await http.get(job["urls"]["poll"], headers=other), 404, "job_not_found")
