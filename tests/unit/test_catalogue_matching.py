"""Which endpoint a method and a path mean."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from coatcheck.domain.catalogue import (
    UPSTREAM_ENDPOINT,
    EndpointSpec,
    HttpTarget,
    Method,
    ServiceSpec,
    VersionSpec,
)

NOW = datetime.now(UTC)


def spec(method: Method, path: str, version: int = 1) -> EndpointSpec:
    return EndpointSpec(
        service="docs",
        version=version,
        key=path,
        method=method,
        path=path,
        timeout_seconds=1.0,
        sync_timeout_seconds=1.0,
    )


def service(*versions: tuple[EndpointSpec, ...]) -> ServiceSpec:
    numbered = {at: VersionSpec(at, endpoints) for at, endpoints in enumerate(versions, start=1)}
    return ServiceSpec("", "default", "docs", "code", numbered, NOW, NOW)


ONE_VERSION = service(
    (
        spec("GET", "/"),
        spec("GET", "/{x}/b"),
        spec("GET", "/a/{y}"),
        spec("GET", "/a/c"),
        spec("GET", "/a/{y}/c.json"),
        spec("POST", "/a/c"),
        spec("DELETE", "/a/{name}"),
    )
)


@pytest.mark.parametrize(
    ("method", "path", "template", "params"),
    [
        ("GET", "/", "/", {}),
        ("GET", "/a/c", "/a/c", {}),
        ("get", "/a/c", "/a/c", {}),
        ("POST", "/a/c", "/a/c", {}),
        ("DELETE", "/a/c", "/a/{name}", {"name": "c"}),
        ("GET", "/a/b", "/a/{y}", {"y": "b"}),
        ("GET", "/z/b", "/{x}/b", {"x": "z"}),
        ("GET", "/a/x%2Fy", "/a/{y}", {"y": "x%2Fy"}),
        ("GET", "/a/q/c.json", "/a/{y}/c.json", {"y": "q"}),
        ("GET", "/a/...", "/a/{y}", {"y": "..."}),
        ("GET", "/a/..b", "/a/{y}", {"y": "..b"}),
        ("GET", "/a/{y}", "/a/{y}", {"y": "{y}"}),
    ],
)
def test_a_fixed_part_goes_before_a_parameter(
    method: str, path: str, template: str, params: dict[str, str]
) -> None:
    matched = ONE_VERSION.match(None, method, path)
    assert matched is not None
    assert (matched.spec.path, matched.params) == (template, params)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/a"),
        ("GET", "/a/"),
        ("GET", "/a/c/"),
        ("GET", "a/c"),
        ("GET", ""),
        ("GET", "//b"),
        ("GET", "/a/q/cxjson"),
        ("GET", "/a/."),
        ("GET", "/a/.."),
        ("GET", "/a/%2e%2E"),
        ("GET", "/../b"),
        ("GET", "/a/../c.json"),
        ("GET", "/a/q/c.json\n"),
        ("PUT", "/a/c"),
        ("TRACE", "/a/c"),
    ],
)
def test_what_nothing_answers_matches_nothing(method: str, path: str) -> None:
    assert ONE_VERSION.match(None, method, path) is None


def test_the_methods_of_a_path_are_those_of_all_templates_that_match() -> None:
    assert ONE_VERSION.methods_for(None, "/a/c") == ("DELETE", "GET", "POST")
    assert ONE_VERSION.methods_for(1, "/z/b") == ("GET",)
    assert ONE_VERSION.methods_for(None, "/nowhere") == ()
    assert ONE_VERSION.methods_for(7, "/a/c") == ()


def test_a_call_without_a_version_gets_the_latest() -> None:
    docs = service((spec("GET", "/old"),), (spec("GET", "/new", version=2),))
    assert docs.latest == 2
    assert docs.match(None, "GET", "/old") is None
    old, new = docs.match(1, "GET", "/old"), docs.match(None, "GET", "/new")
    assert old is not None
    assert new is not None
    assert (old.spec.version, new.spec.version) == (1, 2)
    assert docs.match(3, "GET", "/new") is None


def test_jobs_of_an_upstream_share_an_endpoint_and_have_flows_of_their_own() -> None:
    upstream = EndpointSpec(
        service="docs",
        version=2,
        key="post__x",
        method="POST",
        path="/x",
        timeout_seconds=1.0,
        sync_timeout_seconds=1.0,
        target=HttpTarget("https://example.com", {"authorization": "secret"}, 1.0),
    )
    assert upstream.engine_endpoint == UPSTREAM_ENDPOINT == "gateway.post__http"
    assert upstream.queue_key == upstream.id == "docs.v2.post__x"
    assert "secret" not in repr(upstream)
