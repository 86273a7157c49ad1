"""Lists that cannot be given."""

from __future__ import annotations

import pytest

from tests.deployment import Deployment
from tests.products.gateway import paths
from tests.products.gateway.asking import problem

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("limit", "0"),
        ("limit", "201"),
        ("limit", "ten"),
        ("limit", "-1"),
        ("limit", "1e2"),
        ("limit", "0" * 25 + "201"),
        ("offset", "-1"),
        ("offset", "10001"),
        ("offset", "9" * 400),
        ("status", "sleeping"),
        ("status", ""),
        ("lane", "express"),
        ("cursor", "x"),
        ("cursor", ""),
        ("page", "2"),
    ],
)
async def test_a_field_that_cannot_be_followed_is_refused(
    shared: Deployment, field: str, value: str
) -> None:
    answer = await shared.http.get(paths.jobs(), params={field: value})
    found = problem(answer, 400, "invalid_parameter")
    assert [(each["field"], each["location"]) for each in found["details"]] == [(field, "query")]


async def test_a_field_that_comes_twice_is_refused(shared: Deployment) -> None:
    answer = await shared.http.get(paths.jobs() + "?limit=1&limit=2")
    problem(answer, 400, "invalid_parameter")


@pytest.mark.parametrize("path", [paths.jobs("nobody"), paths.jobs(workspace="elsewhere")])
async def test_what_is_not_there_has_no_list(shared: Deployment, path: str) -> None:
    problem(await shared.http.get(path), 404, "not_found")
