"""What holds for every request: ids, HEAD, 404 and 405, problems, unknown fields."""

from __future__ import annotations

from datetime import datetime

import pytest

from tests.deployment import Deployment
from tests.products.gateway import paths
from tests.products.gateway.asking import end_of, hand_in, problem

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_request_id_is_echoed_and_kept_with_the_job(shared: Deployment) -> None:
    answer = await shared.http.post(
        paths.submit("/process"), json={}, headers={"X-Request-Id": "order-66"}
    )
    assert answer.headers["x-request-id"] == "order-66"
    view = await shared.engine.get(answer.json()["job_id"])
    assert view.request_id == "order-66"


async def test_a_request_without_an_id_is_given_one(shared: Deployment) -> None:
    answers = [await shared.http.post(paths.submit("/process"), json={}) for _ in range(2)]
    ids = [answer.headers["x-request-id"] for answer in answers]
    assert len(set(ids)) == 2
    views = [await shared.engine.get(answer.json()["job_id"]) for answer in answers]
    assert [view.request_id for view in views] == ids


@pytest.mark.parametrize("given", ["", "two words", "x" * 129])
async def test_an_id_that_would_not_fit_a_log_line_is_replaced(
    shared: Deployment, given: str
) -> None:
    answer = await shared.http.get("/healthz", headers={"X-Request-Id": given})
    assert answer.headers["x-request-id"] not in ("", given)


async def test_a_problem_has_every_field_that_is_promised(shared: Deployment) -> None:
    answer = await shared.http.get(paths.jobs(), params={"limit": "0"})
    found = problem(answer, 400, "invalid_parameter")
    assert list(found) == [
        "type",
        "title",
        "status",
        "detail",
        "instance",
        "code",
        "message",
        "timestamp",
        "requestId",
        "details",
    ]
    assert found["message"] == found["detail"]
    assert found["requestId"] == answer.headers["x-request-id"]
    assert datetime.fromisoformat(found["timestamp"]).tzinfo is not None
    assert found["timestamp"].endswith("Z")
    assert found["details"] == [
        {"field": "limit", "issue": "must be a whole number from 1 to 200", "location": "query"}
    ]


async def test_head_answers_what_get_would_without_the_body(shared: Deployment) -> None:
    ticket = await hand_in(shared.http, "/process")
    await end_of(shared.http, ticket)
    for path in (ticket["poll_url"], paths.jobs() + "?limit=1", paths.hosted()):
        get = await shared.http.get(path)
        head = await shared.http.head(path)
        assert (head.status_code, head.content) == (get.status_code, b"")
        for name in ("content-type", "content-length", "etag"):
            assert head.headers.get(name) == get.headers.get(name)
    absent = await shared.http.head(paths.job("0" * 26))
    assert (absent.status_code, absent.content) == (404, b"")


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("POST", paths.job("0" * 26), "GET, HEAD"),
        ("DELETE", paths.job("0" * 26), "GET, HEAD"),
        ("GET", paths.job("0" * 26) + "/cancel", "POST"),
        ("POST", paths.job("0" * 26) + "/events", "GET, HEAD"),
        ("PUT", paths.submit("/analyze"), "POST"),
        ("GET", paths.submit("/analyze", version=2), "POST"),
        ("POST", paths.jobs(), "GET, HEAD"),
        ("POST", paths.hosted(), "DELETE, GET, HEAD, PUT"),
        ("POST", "/api/v1/orgs/default/usage", "GET, HEAD"),
    ],
)
async def test_a_method_that_a_route_does_not_take(
    shared: Deployment, method: str, path: str, allow: str
) -> None:
    answer = await shared.http.request(method, path)
    problem(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == allow


@pytest.mark.parametrize(
    "path", ["/api/v1", "/api/v1/orgs/default", "/api/v1/orgs/default/workspaces"]
)
async def test_a_path_that_nothing_is_served_at(shared: Deployment, path: str) -> None:
    problem(await shared.http.get(path), 404, "not_found")


@pytest.mark.parametrize("path", ["//api/v1", "/x"])
async def test_a_path_below_nobodys_prefix_has_an_error_that_anybody_reads(
    shared: Deployment, path: str
) -> None:
    answer = await shared.http.get(f"{str(shared.http.base_url).rstrip('/')}{path}")
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/json")
    assert (answer.json()["code"], answer.json()["error"]["code"]) == ("not_found", "not_found")


@pytest.mark.parametrize("job_id", ["x", "0" * 25, "0" * 27, "%20", "8" + "Z" * 25, "a%2Fb"])
async def test_what_is_no_id_names_no_job(shared: Deployment, job_id: str) -> None:
    problem(await shared.http.get(paths.job(job_id)), 404, "job_not_found")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", paths.job("0" * 26)),
        ("GET", paths.job("0" * 26) + "/events"),
        ("POST", paths.job("0" * 26) + "/cancel"),
        ("GET", paths.jobs()),
        ("GET", paths.jobs() + "/batch-status"),
        ("GET", paths.hosted()),
        ("PUT", paths.hosted("mine")),
        ("DELETE", paths.hosted("mine")),
        ("GET", "/api/v1/orgs/default/usage"),
    ],
)
async def test_a_field_of_the_query_that_nobody_reads_is_refused(
    shared: Deployment, method: str, path: str
) -> None:
    answer = await shared.http.request(method, path, params={"colour": "red"})
    found = problem(answer, 400, "invalid_parameter")
    assert [(each["field"], each["location"]) for each in found["details"]] == [("colour", "query")]


async def test_a_job_is_found_at_its_own_service_only(shared: Deployment) -> None:
    ticket = await hand_in(shared.http, "/process")
    for path in (
        paths.job(ticket["job_id"], "letters"),
        paths.job(ticket["job_id"], "DOCS"),
        paths.job(ticket["job_id"], org="elsewhere"),
    ):
        problem(await shared.http.get(path), 404, "job_not_found")
