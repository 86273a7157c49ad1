"""Versions of a service."""

from __future__ import annotations

import pytest

from tests.deployment import Deployment
from tests.products.gateway import paths
from tests.products.gateway.asking import end_of
from tests.products.gateway.docs_service import docs_v2


async def test_a_version_can_be_named_and_else_it_is_the_latest(staffed_twice: Deployment) -> None:
    http = staffed_twice.http
    body = {"content": "two words"}
    for version, expected in ((1, "docs.v1"), (2, "docs.v2"), (None, "docs.v2")):
        answer = await http.post(paths.submit("/analyze", version=version), json=body)
        job = await end_of(http, answer.json())
        assert (job["version_id"], job["status"]) == (expected, "completed")
        answer = await http.post(paths.call("/analyze", version=version), json=body)
        assert ("version" in answer.json()) == (expected == "docs.v2")


async def test_a_job_of_any_version_is_found_at_its_service(staffed_twice: Deployment) -> None:
    http = staffed_twice.http
    answer = await http.post(paths.submit("/analyze", version=1), json={"content": "a"})
    assert answer.headers["location"] == paths.job(answer.json()["job_id"])


@pytest.fixture
async def staffed_twice(staffed: Deployment) -> Deployment:
    await staffed.start_worker(docs_v2)
    return staffed
