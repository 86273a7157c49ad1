"""Services that cannot be registered."""

from __future__ import annotations

from typing import Any

import pytest

from tests.deployment import Deployment
from tests.products.gateway import paths
from tests.products.gateway.asking import problem

pytestmark = pytest.mark.asyncio(loop_scope="module")


def endpoint(**changes: Any) -> dict[str, Any]:
    target = {"type": "http", "url": "http://127.0.0.1/"}
    return {"method": "POST", "path": "/ask", "target": target, **changes}


def service(*endpoints: Any, version: str = "1") -> dict[str, Any]:
    return {"versions": {version: {"endpoints": [*endpoints]}}}


async def test_the_name_of_a_service_of_code_is_taken(shared: Deployment) -> None:
    answer = await shared.http.put(paths.hosted("docs"), json=service(endpoint()))
    problem(answer, 409, "service_name_taken")
    shown = (await shared.http.get(paths.hosted("docs"))).json()
    assert shown["source"] == "code"
    problem(await shared.http.delete(paths.hosted("docs")), 404, "not_found")


async def test_the_name_of_a_service_in_another_workspace_is_taken(shared: Deployment) -> None:
    document = service(endpoint())
    here = await shared.http.put(paths.hosted("owned", workspace="here"), json=document)
    assert here.status_code == 200
    there = await shared.http.put(paths.hosted("owned", workspace="there"), json=document)
    problem(there, 409, "service_name_taken")
    for method in ("GET", "DELETE"):
        answer = await shared.http.request(method, paths.hosted("owned", workspace="there"))
        problem(answer, 404, "not_found")


@pytest.mark.parametrize(
    "url",
    [
        "http://10.0.0.1/",
        "http://[::1]/",
        "http://169.254.169.254/latest/meta-data",
        "https://user:pass@example.com/",
        "ftp://127.0.0.1/",
        "http://0x7f.1/",
        "file:///etc/passwd",
    ],
)
async def test_an_upstream_that_may_not_be_called_is_refused(shared: Deployment, url: str) -> None:
    document = service(endpoint(), endpoint(path="/other", target={"type": "http", "url": url}))
    found = problem(
        await shared.http.put(paths.hosted("forbidden"), json=document), 422, "url_forbidden"
    )
    assert "versions.1.endpoints[1].target.url" in found["detail"]
    problem(await shared.http.get(paths.hosted("forbidden")), 404, "not_found")


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({}, "body"),
        ({"versions": {}}, "versions"),
        ({"versions": {"0": {"endpoints": [endpoint()]}}}, "versions"),
        (service(), "endpoints"),
        (service(endpoint(method="TRACE")), "method"),
        (service(endpoint(path="no-slash")), "path"),
        (service(endpoint(path="/a/{b")), "path"),
        (service(endpoint(lane="express")), "lane"),
        (service(endpoint(auth="anyone")), "auth"),
        (service(endpoint(retries=-1)), "retries"),
        (service(endpoint(sync_timeout=61)), "sync_timeout"),
        (service(endpoint(target={"type": "python"})), "target"),
        (service(endpoint(target={"type": "remote"})), "target"),
        (service(endpoint(target={"type": "http", "url": ""})), "url"),
        (service(endpoint(), endpoint()), "endpoints"),
        (service(endpoint(path="/async/x")), "path"),
        (service(endpoint(path="/jobs/{id}")), "path"),
        ([service(endpoint())], "body"),
    ],
)
async def test_a_document_that_does_not_fit_says_where(
    shared: Deployment, document: Any, field: str
) -> None:
    answer = await shared.http.put(paths.hosted("crooked"), json=document)
    found = problem(answer, 422, "invalid_input")
    assert found["details"]
    for detail in found["details"]:
        assert field in f"{detail['field']} {detail['issue']}"
        assert detail["location"] == "body"


async def test_a_field_that_a_document_does_not_have_is_refused(shared: Deployment) -> None:
    document = service(endpoint(colour="red"))
    answer = await shared.http.put(paths.hosted("crooked"), json=document)
    assert "colour" in problem(answer, 400, "invalid_parameter")["detail"]


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b"", 400, "invalid_body"),
        (b"{", 400, "invalid_body"),
        (b'{"versions": NaN}', 400, "invalid_body"),
        (b" " * (1024 * 1024 + 1), 413, "body_too_large"),
    ],
)
async def test_a_body_that_is_no_document(
    shared: Deployment, content: bytes, status: int, code: str
) -> None:
    answer = await shared.http.put(
        paths.hosted("crooked"), content=content, headers={"Content-Type": "application/json"}
    )
    problem(answer, status, code)


@pytest.mark.parametrize("name", ["1st", "gateway", "coatcheck-x", "a.b", "%20", "x" * 64])
async def test_a_name_that_no_service_can_have(shared: Deployment, name: str) -> None:
    answer = await shared.http.put(paths.hosted(name), json=service(endpoint()))
    found = problem(answer, 400, "invalid_parameter")
    assert [(each["field"], each["location"]) for each in found["details"]] == [("service", "path")]


@pytest.mark.parametrize("workspace", ["%20", "x" * 64, ".hidden"])
async def test_a_name_that_no_workspace_can_have(shared: Deployment, workspace: str) -> None:
    answer = await shared.http.put(
        paths.hosted("mine", workspace=workspace), json=service(endpoint())
    )
    problem(answer, 400, "invalid_parameter")
