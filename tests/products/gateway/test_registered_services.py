"""Services that are registered over HTTP, with an http upstream that does the work."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from tests.deployment import Deployment
from tests.egress.upstream_server import UpstreamServer, plain, upstream_server
from tests.products.gateway import paths
from tests.products.gateway.asking import end_of, problem
from tests.waiting import eventually_async

pytestmark = pytest.mark.asyncio(loop_scope="module")

JSON = (("Content-Type", "application/json"),)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def calling(shared: Deployment) -> Deployment:
    """A deployment with a worker that calls upstreams."""
    await shared.start_gateway_worker()
    return shared


@pytest_asyncio.fixture(loop_scope="module")
async def upstream() -> AsyncIterator[UpstreamServer]:
    async with upstream_server(plain(b'{"answer": 42}', headers=JSON)) as server:
        yield server


async def test_a_service_is_registered_and_shown_without_its_secrets(
    calling: Deployment, upstream: UpstreamServer
) -> None:
    document = definition(upstream, headers={"X-Secret": "hush"})
    answer = await calling.http.put(paths.hosted("shown", workspace="team"), json=document)
    assert answer.status_code == 200
    shown = answer.json()
    assert (shown["org_id"], shown["workspace_id"], shown["service_id"]) == (
        "default",
        "team",
        "shown",
    )
    assert (shown["source"], shown["latest_version"]) == ("http", 1)
    (endpoint,) = shown["definition"]["versions"]["1"]["endpoints"]
    assert (endpoint["key"], endpoint["method"], endpoint["path"]) == (
        "post__ask_topic",
        "POST",
        "/ask/{topic}",
    )
    assert endpoint["target"]["headers"] == {"X-Secret": "***"}
    assert "hush" not in answer.text
    get = await calling.http.get(paths.hosted("shown", workspace="team"))
    assert get.json() == shown


async def test_a_document_sent_back_as_it_was_shown_keeps_its_secrets(
    calling: Deployment, upstream: UpstreamServer
) -> None:
    await register(calling, "kept", definition(upstream, headers={"X-Secret": "hush"}))
    shown = (await calling.http.get(paths.hosted("kept"))).json()["definition"]
    await register(calling, "kept", shown)
    await calling.http.post(paths.call("/ask/life", "kept"), json={})
    assert upstream.requests[-1].header("x-secret") == "hush"


async def test_a_job_calls_the_upstream_and_shows_its_answer(
    calling: Deployment, upstream: UpstreamServer
) -> None:
    await register(calling, "asked", definition(upstream, headers={"X-Secret": "hush"}))
    answer = await calling.http.post(
        paths.submit("/ask/life%2Fdeath", "asked") + "?deep=1&wait=0",
        json={"why": "why not"},
        headers={"X-Mine": "kept", "X-Request-Id": "order-66"},
    )
    assert answer.status_code == 202
    job = await end_of(calling.http, answer.json())
    assert (job["status"], job["result_summary"]) == ("completed", {"answer": 42})
    assert (job["service_id"], job["version_id"], job["endpoint_id"]) == (
        "asked",
        "asked.v1",
        "asked.v1.post__ask_topic",
    )
    (request,) = upstream.requests
    assert (request.method, request.target) == ("POST", "/base/ask/life%2Fdeath?deep=1")
    assert json.loads(request.body) == {"why": "why not"}
    assert request.header("x-mine") == "kept"
    assert request.header("x-secret") == "hush"
    assert request.header("authorization") is None
    assert request.header("x-request-id") == "order-66"


async def test_a_synchronous_call_repeats_the_upstreams_answer(
    calling: Deployment, upstream: UpstreamServer
) -> None:
    await register(calling, "repeated", definition(upstream))
    body = b"\x89PNG..."
    upstream.answer = plain(
        body,
        "201 Created",
        (("Content-Type", "image/png"), ("Location", "/things/1"), ("ETag", '"a"')),
    )
    answer = await calling.http.post(paths.call("/ask/x", "repeated") + "?wait=5", content=b"raw")
    assert (answer.status_code, answer.content) == (201, body)
    assert answer.headers.get_list("location") == ["/things/1"]
    assert answer.headers["content-type"] == "image/png"
    assert answer.headers["etag"] == '"a"'
    assert answer.headers["cache-control"] == "no-store"
    assert upstream.requests[-1].target == "/base/ask/x?wait=5"
    assert upstream.requests[-1].body == b"raw"
    job = (await calling.http.get(answer.links["job"]["url"])).json()
    assert (job["status"], job["service_id"]) == ("completed", "repeated")


async def test_an_upstream_that_refuses_fails_the_job(
    calling: Deployment, upstream: UpstreamServer
) -> None:
    await register(calling, "refusing", definition(upstream))
    upstream.answer = plain(b"no such topic", "404 Not Found", (("Content-Type", "text/plain"),))
    answer = await calling.http.post(paths.call("/ask/x", "refusing"), json={})
    found = problem(answer, 502, "upstream_status_404")
    assert "no such topic" in found["detail"]


async def test_a_path_may_not_lead_out_of_the_upstreams_own(
    calling: Deployment, upstream: UpstreamServer
) -> None:
    await register(calling, "fenced", definition(upstream))
    for part in ("%2e%2e", "%2E", "..%2fx", "x%2F%2e%2e%2f..", "x%5c..", "..;", "%2e%2e%3bx"):
        answer = await calling.http.post(paths.submit(f"/ask/{part}", "fenced"), json={})
        assert answer.status_code in (400, 404)
    assert upstream.requests == []


async def test_versions_of_a_registered_service(
    calling: Deployment, upstream: UpstreamServer
) -> None:
    first = definition(upstream)
    second = definition(upstream, base="/second")
    both = {"versions": {"1": first["versions"]["1"], "2": second["versions"]["1"]}}
    await register(calling, "versioned", both)
    for version, base in ((1, "/base"), (2, "/second"), (None, "/second")):
        await calling.http.post(paths.call("/ask/x", "versioned", version=version), json={})
        assert upstream.requests[-1].target == f"{base}/ask/x"


async def test_a_service_is_an_organisations_own(
    calling: Deployment, upstream: UpstreamServer
) -> None:
    await calling.create_org("neighbour")
    key = await calling.create_key("neighbour")
    await register(calling, "private", definition(upstream))
    theirs = {"Authorization": f"Bearer {key}"}
    for path in (
        paths.hosted("private", org="neighbour"),
        paths.jobs("private", org="neighbour"),
        paths.hosted("private"),
    ):
        problem(await calling.http.get(path, headers=theirs), 404, "not_found")
    answer = await calling.http.post(
        paths.submit("/ask/x", "private", org="neighbour"), json={}, headers=theirs
    )
    problem(answer, 404, "not_found")


async def test_the_services_that_an_organisation_can_call_are_listed(
    calling: Deployment, upstream: UpstreamServer
) -> None:
    for name in ("mine", "yours"):
        await register(calling, name, definition(upstream))
    url = paths.service("").removesuffix("/")
    names: list[str] = []
    query: dict[str, str | int] = {"limit": 2}
    while True:
        page = (await calling.http.get(url, params=query)).json()
        names += [each["service_id"] for each in page["items"]]
        if page["next"] is None:
            break
        query["cursor"] = page["next"]
    assert names == sorted(set(names))
    assert {"docs", "mine", "yours"} <= set(names)
    everything = (await calling.http.get(url)).json()["items"]
    (mine,) = [each for each in everything if each["service_id"] == "mine"]
    assert mine["url"] == paths.hosted("mine")
    whole = (await calling.http.get(mine["url"])).json()
    assert {name: mine[name] for name in mine.keys() & whole.keys()} == {
        name: whole[name] for name in mine.keys() & whole.keys()
    }
    problem(await calling.http.get(url, params={"cursor": "no name"}), 400, "invalid_parameter")


async def test_the_jobs_of_a_registered_service_are_listed(
    calling: Deployment, upstream: UpstreamServer
) -> None:
    for name in ("counted", "counted-too"):
        await register(calling, name, definition(upstream))
        await calling.http.post(paths.call("/ask/x", name), json={})
    page = (await calling.http.get(paths.jobs("counted"))).json()
    assert (page["total"], [job["service_id"] for job in page["items"]]) == (1, ["counted"])


async def test_a_service_that_is_taken_away_is_gone_and_its_jobs_stay(
    calling: Deployment, upstream: UpstreamServer
) -> None:
    await register(calling, "passing", definition(upstream))
    ticket = (await calling.http.post(paths.submit("/ask/x", "passing"), json={})).json()
    await end_of(calling.http, ticket)
    answer = await calling.http.delete(paths.hosted("passing"))
    assert (answer.status_code, answer.content) == (204, b"")
    problem(await calling.http.get(paths.hosted("passing")), 404, "not_found")
    problem(await calling.http.delete(paths.hosted("passing")), 404, "not_found")
    problem(await calling.http.post(paths.submit("/ask/x", "passing"), json={}), 404, "not_found")
    assert (await end_of(calling.http, ticket))["result_summary"] == {"answer": 42}


async def test_another_replica_knows_a_service_as_soon_as_it_is_changed(
    calling: Deployment, upstream: UpstreamServer
) -> None:
    second = await calling.start_server()
    await register(calling, "moved", definition(upstream))
    await second.http.post(paths.call("/ask/x", "moved"), json={})
    assert upstream.requests[-1].target == "/base/ask/x"
    await register(calling, "moved", definition(upstream, base="/moved"))
    while upstream.requests[-1].target != "/moved/ask/x":
        await second.http.post(paths.call("/ask/x", "moved"), json={})


async def test_an_open_endpoint_of_a_registered_service(
    calling: Deployment, upstream: UpstreamServer
) -> None:
    await register(calling, "public", definition(upstream, auth="none"))
    async with httpx2.AsyncClient(base_url=calling.http.base_url, trust_env=False) as anyone:
        answer = await anyone.post(paths.call("/ask/x", "public"), json={})
        assert (answer.status_code, answer.json()) == (200, {"answer": 42})
        assert (await anyone.get(answer.links["job"]["url"])).json()["status"] == "completed"


@pytest.mark.parametrize("kind", ["http", "remote"])
async def test_a_long_timeout_is_a_right(
    calling: Deployment, upstream: UpstreamServer, kind: str
) -> None:
    plain_org, allowed_org, strict_org = (f"{each}-{kind}" for each in ("plain", "given", "strict"))
    await calling.create_org(plain_org)
    await calling.create_org(allowed_org, timeout_max=86_400)
    await calling.create_org(strict_org, timeout_max=60)
    for org, most in ((plain_org, 3_600), (allowed_org, 86_400), (strict_org, 60)):
        key = {"Authorization": f"Bearer {await calling.create_key(org)}"}
        path = paths.hosted("long", org=org)
        for seconds in (most, most + 1):
            document = definition(upstream)
            (endpoint,) = document["versions"]["1"]["endpoints"]
            endpoint["timeout"] = seconds
            if kind == "remote":
                url = upstream.url("/base")
                endpoint["target"] = {"type": "remote", "adapter": "http", "url": url}
            answer = await calling.http.put(path, json=document, headers=key)
            if seconds > 86_400:
                problem(answer, 422, "invalid_input")
            elif seconds > most:
                found = problem(answer, 403, "timeout_not_allowed")
                assert "versions.1.endpoints[0].timeout" in found["detail"]
                assert f"{most} s" in found["detail"]
            else:
                assert answer.status_code == 200, answer.text


async def test_a_service_from_before_a_right_was_taken_away_is_called_for_no_longer(
    calling: Deployment, upstream: UpstreamServer
) -> None:
    await calling.create_org("demoted", timeout_max=86_400)
    key = {"Authorization": f"Bearer {await calling.create_key('demoted')}"}
    document = definition(upstream)
    (endpoint,) = document["versions"]["1"]["endpoints"]
    endpoint["timeout"] = 86_400
    endpoint["path"] = "/ask"
    path = paths.hosted("long", org="demoted")
    assert (await calling.http.put(path, json=document, headers=key)).status_code == 200
    await calling.limit_org("demoted", timeout_max=120)

    async def refused() -> bool:
        return (await calling.http.put(path, json=document, headers=key)).status_code == 403

    await eventually_async(refused, "the servers know of it")
    answer = await calling.http.post(
        paths.submit("/ask", "long", org="demoted"), json={}, headers=key
    )
    assert answer.status_code == 202
    body = {"service": "long", "endpoint": "/ask", "tasks": [{"input": {}}]}
    batch = await calling.http.post("/v1/jobs", json=body, headers=key)
    assert batch.status_code == 201, batch.text
    assert await timeouts(calling, "demoted") == [120, 120]


async def timeouts(deployment: Deployment, org: str) -> list[float]:
    """How many seconds the call of each job of an organisation may take: of a batch's task its
    payload alone says it."""
    rows = await deployment.sql.fetch(
        "SELECT coalesce(timeout_seconds, (convert_from(payload, 'UTF8')::jsonb"
        " #>> '{call,timeout_seconds}')::real) AS seconds"
        " FROM jobs WHERE org_id = $1 ORDER BY id",
        org,
    )
    return [row["seconds"] for row in rows]


async def test_what_an_upstream_answers_is_not_served_as_a_script(
    calling: Deployment, upstream: UpstreamServer
) -> None:
    await register(calling, "scripted", definition(upstream, auth="none"))
    script = b"window.pwned = 1;"
    upstream.answer = plain(script, headers=(("Content-Type", "text/javascript"),))
    path = paths.call("/ask/x", "scripted")
    for destination in ("script", "serviceworker", "style"):
        headers = {"Sec-Fetch-Dest": destination}
        problem(await calling.http.post(path, headers=headers), 403, "not_served_as_code")
    assert upstream.requests == []
    answer = await calling.http.post(path, headers={"Sec-Fetch-Dest": "empty"})
    assert answer.content == script
    assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(("key", "replayed"), [("same", True), ("other", False)])
async def test_a_key_is_known_again_whatever_the_requests_own_headers(
    calling: Deployment, upstream: UpstreamServer, key: str, replayed: bool
) -> None:
    await register(calling, "keyed", definition(upstream))
    route = paths.submit("/ask/x", "keyed")
    await calling.http.post(
        route, json={}, headers={"Idempotency-Key": f"{replayed}-same", "X-Request-Id": "first"}
    )
    again = await calling.http.post(
        route, json={}, headers={"Idempotency-Key": f"{replayed}-{key}", "X-Request-Id": "second"}
    )
    assert ("idempotent-replayed" in again.headers) == replayed
    assert "idempotency-mismatch" not in again.headers


def definition(
    upstream: UpstreamServer, *, base: str = "/base", headers: Any = None, auth: str = "platform"
) -> dict[str, Any]:
    target = {"type": "http", "url": upstream.url(base), "headers": headers or {}}
    endpoint = {
        "method": "POST",
        "path": "/ask/{topic}",
        "auth": auth,
        "retries": 0,
        "target": target,
    }
    return {"versions": {"1": {"endpoints": [endpoint]}}}


async def register(deployment: Deployment, name: str, document: dict[str, Any]) -> None:
    answer = await deployment.http.put(paths.hosted(name), json=document)
    assert answer.status_code == 200, answer.text
