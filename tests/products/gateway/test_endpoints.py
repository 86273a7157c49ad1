"""Which endpoint a request means: service, version, method and path."""

from __future__ import annotations

import pytest

from tests.deployment import Deployment
from tests.products.gateway import paths
from tests.products.gateway.asking import end_of, hand_in, problem

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_an_endpoint_that_takes_no_jobs_says_so(shared: Deployment) -> None:
    answer = await shared.http.post(paths.submit("/sync-only"), json={})
    problem(answer, 400, "not_async_eligible")
    assert (await shared.http.post(paths.call("/sync-only"), json={})).json() == "here"


async def test_the_target_method_is_written_as_one_likes(shared: Deployment) -> None:
    ticket = await hand_in(shared.http, "/items/7", X_HSL_Target_Method="get")
    job = await end_of(shared.http, ticket)
    assert job["endpoint_id"] == "docs.v1.get__items_item"
    assert job["result_summary"] == {"item": 7, "deep": False}


@pytest.mark.parametrize("method", [None, "DELETE", "NONSENSE"])
async def test_a_target_method_that_the_path_lacks_is_refused(
    shared: Deployment, method: str | None
) -> None:
    headers = {} if method is None else {"X-HSL-Target-Method": method}
    answer = await shared.http.post(paths.submit("/items/7"), json={}, headers=headers)
    found = problem(answer, 400, "invalid_parameter")
    assert [detail["field"] for detail in found["details"]] == ["X-HSL-Target-Method"]
    assert "GET, PUT" in found["detail"]


async def test_a_synchronous_call_by_another_method_is_told_which_to_use(
    shared: Deployment,
) -> None:
    answer = await shared.http.delete(paths.call("/items/7"))
    problem(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == "GET, HEAD, PUT"


@pytest.mark.parametrize(
    "path",
    [
        paths.submit("/nothing"),
        paths.submit("/analyze/deeper"),
        paths.submit("/"),
        paths.submit("/analyze", "nobody"),
        paths.submit("/analyze", "no%20name"),
        paths.submit("/analyze", version=7),
        paths.submit("/analyze", "gateway"),
        paths.submit("/http", "gateway"),
        paths.call("/nothing"),
        paths.call("/nothing", version=1),
        paths.call("/analyze", org="other"),
    ],
)
async def test_what_is_not_there_is_not_found(shared: Deployment, path: str) -> None:
    problem(await shared.http.post(path, json={}), 404, "not_found")


@pytest.mark.parametrize("version", ["v0", "v01", "v", "v1x", "v1234567890"])
async def test_what_is_no_version_is_not_taken_for_one(shared: Deployment, version: str) -> None:
    answer = await shared.http.post(f"{paths.service()}/{version}/async/analyze", json={})
    problem(answer, 404, "not_found")
