"""Finding the operation for a method and a path."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from coatcheck.http.request import Request
from coatcheck.http.response import Response
from coatcheck.http.routing import EVERY_METHOD, Match, Method, Route, Router


async def nothing(request: Request) -> Response:
    return Response(204)


def route(path: str, methods: Sequence[Method] = ("GET",)) -> Route:
    return Route(
        methods=methods,
        path=path,
        name=path,
        summary="",
        handler=nothing,
        responses=[],
        tag="tests",
    )


GATEWAY = Router(
    [
        route("/"),
        route("/health"),
        route("/o/{org}/jobs/{id}"),
        route("/o/{org}/jobs/many", ["POST"]),
        route("/o/{org}/s/{service}/jobs/{id}"),
        route("/o/{org}/s/{service}/jobs/{id}/cancel", ["POST"]),
        route("/o/{org}/s/{service}/async/{path:path}", ["POST"]),
        route("/o/{org}/s/{service}/v{version}/async/{path:path}", ["POST"]),
        route("/o/{org}/s/{service}/{path:path}", EVERY_METHOD),
        route("/o/{org}/s/{service}/v{version}/{path:path}", EVERY_METHOD),
    ]
)


@pytest.mark.parametrize(
    ("method", "path", "route", "params"),
    [
        ("GET", "/", "/", []),
        ("GET", "/health", "/health", []),
        ("HEAD", "/health", "/health", []),
        ("GET", "/o/a/s/b/jobs/7", "/o/{org}/s/{service}/jobs/{id}", ["a", "b", "7"]),
        ("POST", "/o/a/s/b/async/x", "/o/{org}/s/{service}/async/{path:path}", ["a", "b", "x"]),
        (
            "POST",
            "/o/a/s/b/async/x/y%2Fz/",
            "/o/{org}/s/{service}/async/{path:path}",
            ["a", "b", "x/y%2Fz/"],
        ),
        (
            "POST",
            "/o/a/s/b/v12/async/x",
            "/o/{org}/s/{service}/v{version}/async/{path:path}",
            ["a", "b", "12", "x"],
        ),
        (
            "PUT",
            "/o/a/s/b/v2/x",
            "/o/{org}/s/{service}/v{version}/{path:path}",
            ["a", "b", "2", "x"],
        ),
        ("PUT", "/o/a/s/b/v0/x", "/o/{org}/s/{service}/{path:path}", ["a", "b", "v0/x"]),
        ("GET", "/o/a/s/b/v2", "/o/{org}/s/{service}/{path:path}", ["a", "b", "v2"]),
        ("GET", "/o/a/s/b/jobs", "/o/{org}/s/{service}/{path:path}", ["a", "b", "jobs"]),
        (
            "GET",
            "/o/a/s/b/jobs/7/more",
            "/o/{org}/s/{service}/{path:path}",
            ["a", "b", "jobs/7/more"],
        ),
        ("GET", "/o/a/s/b/", "/o/{org}/s/{service}/{path:path}", ["a", "b", ""]),
        ("GET", "/o/%61%2Fb/s/b/jobs/%C3%A9", "/o/{org}/s/{service}/jobs/{id}", ["a/b", "b", "é"]),
        ("POST", "/o/a/s/b/%61sync/x", "/o/{org}/s/{service}/{path:path}", ["a", "b", "%61sync/x"]),
    ],
)
def test_a_path_is_found(method: str, path: str, route: str, params: list[str]) -> None:
    found = GATEWAY.find(method, path)
    assert isinstance(found, Match)
    assert found.route.path == route
    assert list(found.params.values()) == params


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/health", {"GET"}),
        ("OPTIONS", "/o/a/s/b/x", {*EVERY_METHOD}),
        ("POST", "/o/a/s/b/jobs/7", {"GET"}),
        ("GET", "/o/a/s/b/jobs/7/cancel", {"POST"}),
        ("GET", "/o/a/jobs/many", {"POST"}),
        ("GET", "/o/a/s/b/async/x", {"POST"}),
        ("DELETE", "/o/a/s/b/v2/async/x", {"POST"}),
        ("GET", "/nothing", set()),
        ("GET", "/health/", set()),
        ("GET", "//health", set()),
        ("GET", "/o//s/b/x", set()),
        ("GET", "/o/a/s", set()),
        ("GET", "", set()),
    ],
)
def test_a_path_that_is_not_found_says_what_it_takes(
    method: str, path: str, allowed: set[str]
) -> None:
    assert GATEWAY.find(method, path) == frozenset(allowed)


def test_one_path_and_method_cannot_be_declared_twice() -> None:
    with pytest.raises(AssertionError, match="declared twice"):
        Router([route("/a/{b}"), route("/a/{c}")])


def test_paths_of_one_shape_may_name_their_parameters_differently() -> None:
    router = Router([route("/a/{b}"), route("/a/{c}", ["POST"])])
    get, post = router.find("GET", "/a/1"), router.find("POST", "/a/1")
    assert isinstance(get, Match)
    assert isinstance(post, Match)
    assert (get.params, post.params) == ({"b": "1"}, {"c": "1"})
