"""The document that registers a service: what it may say, and what it comes to."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from coatcheck.domain.catalogue import HttpTarget, ServiceDefinition, ServiceSpec, VersionSpec
from coatcheck.domain.errors import InvalidInput, InvalidParameter
from coatcheck.domain.registration import Concealed, check_service_name, conceal, versions_of
from coatcheck.domain.service_definition import HIDDEN, UPSTREAM, TargetSecrets

NOW = datetime.now(UTC)
TARGET = {"type": "http", "url": "https://upstream.example/api"}
ENDPOINT = {"method": "POST", "path": "/analyze", "target": TARGET}


REMOTE = {
    "type": "remote",
    "adapter": "http",
    "url": "https://remote.example",
    "secret": "key",
    "secrets": {"key": "s3cret-token"},
}


def definition(*endpoints: dict[str, Any], version: str = "1") -> ServiceDefinition:
    document = {"versions": {version: {"endpoints": list(endpoints)}}}
    return msgspec.json.decode(msgspec.json.encode(document), type=ServiceDefinition)


def stored(versions: Mapping[int, VersionSpec]) -> ServiceSpec:
    return ServiceSpec("acme", "default", "docs", "http", versions, NOW, NOW)


def test_a_definition_needs_only_a_method_a_path_and_a_target() -> None:
    (version,) = versions_of("docs", definition(ENDPOINT, version="4")).values()
    (spec,) = version.endpoints
    assert version.version == spec.version == 4
    assert spec.key == "post__analyze"
    assert spec.target == HttpTarget("https://upstream.example/api", {}, 300.0)
    assert (spec.timeout_seconds, spec.sync_timeout_seconds) == (300.0, 30.0)
    assert (spec.lane.value, spec.retries, spec.auth) == ("standard", None, "platform")
    assert spec.async_eligible


def test_a_definition_says_everything_that_a_declaration_can() -> None:
    endpoint = {
        **ENDPOINT,
        "key": "analysis",
        "async_eligible": False,
        "auth": "none",
        "lane": "urgent",
        "retries": 0,
        "timeout": 20,
        "sync_timeout": 60,
        "keep_completed": 60,
        "keep_failed": 0,
        "target": {**TARGET, "headers": {"Authorization": "Bearer s3cret"}, "timeout": 10},
    }
    (version,) = versions_of("docs", definition(endpoint)).values()
    (spec,) = version.endpoints
    assert (spec.key, spec.auth, spec.lane.value) == ("analysis", "none", "urgent")
    assert (spec.retries, spec.async_eligible) == (0, False)
    assert (spec.keep_completed_seconds, spec.keep_failed_seconds) == (60.0, 0.0)
    assert spec.target is not None
    assert (spec.timeout_seconds, spec.target.timeout_seconds) == (20.0, 10.0)
    assert spec.target.headers == {"Authorization": "Bearer s3cret"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"method": "HEAD"},
        {"method": "post"},
        {"path": "analyze"},
        {"path": "/a b"},
        {"path": "/" + "a" * 512},
        {"key": ""},
        {"key": "a.b"},
        {"key": "k" * 129},
        {"auth": "nobody"},
        {"lane": "fast"},
        {"retries": -1},
        {"retries": 1_001},
        {"retries": 1.5},
        {"timeout": 0},
        {"timeout": 86_401},
        {"sync_timeout": 0},
        {"sync_timeout": 60.1},
        {"keep_completed": -1},
        {"keep_failed": 1e12},
        {"target": None},
        {"target": {"type": "smtp"}},
        {"target": {"type": "http"}},
        {"target": {**TARGET, "url": "https://x/" + "a" * 2_048}},
        {"target": {**TARGET, "headers": {f"h{n}": "" for n in range(51)}}},
        {"target": {**TARGET, "headers": {"na me": "x"}}},
        {"target": {**TARGET, "headers": {"name": "a\r\nb: c"}}},
        {"target": {**TARGET, "headers": {"name": "café"}}},
        {"target": {**TARGET, "headers": {"name": "x" * 8_001}}},
        {"target": {**TARGET, "method": "GET"}},
        {"colour": "red"},
    ],
)
def test_what_a_field_cannot_say_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        definition({**ENDPOINT, **wrong})


@pytest.mark.parametrize("number", ["0", "01", "-1", "1.5", "v1", "10000", ""])
def test_versions_are_numbers_from_one(number: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        definition(ENDPOINT, version=number)


def test_versions_and_endpoints_are_bounded() -> None:
    endpoints = [{**ENDPOINT, "path": f"/{n}"} for n in range(101)]
    versions_of("docs", definition(*endpoints[:100]))
    with pytest.raises(msgspec.ValidationError):
        definition(*endpoints)
    with pytest.raises(msgspec.ValidationError):
        definition()
    many = {"versions": {str(n): {"endpoints": [ENDPOINT]} for n in range(1, 22)}}
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(many, ServiceDefinition)


@pytest.mark.parametrize(
    ("endpoints", "field", "issue"),
    [
        (
            [ENDPOINT, {**ENDPOINT, "path": "/other", "key": "post__analyze"}],
            "versions.1.endpoints[1].key",
            "another endpoint",
        ),
        ([ENDPOINT, {**ENDPOINT, "key": "other"}], "versions.1.endpoints[1].path", "same"),
        (
            [{**ENDPOINT, "path": "/{a}"}, {**ENDPOINT, "path": "/{b}"}],
            "versions.1.endpoints[1].path",
            "same",
        ),
        ([{**ENDPOINT, "path": "/{a}/{a}"}], "versions.1.endpoints[0].path", "twice"),
        ([{**ENDPOINT, "path": "/jobs/{id}"}], "versions.1.endpoints[0].path", "reserved paths"),
        ([{**ENDPOINT, "path": "/async/x"}], "versions.1.endpoints[0].path", "reserved paths"),
        ([{**ENDPOINT, "path": "/v2/x"}], "versions.1.endpoints[0].path", "reserved paths"),
        ([{**ENDPOINT, "path": "/" + "a" * 200}], "versions.1.endpoints[0].key", "set one"),
        (
            [{**ENDPOINT, "target": {"type": "python"}}],
            "versions.1.endpoints[0].target",
            "worker's code",
        ),
        (
            [{**ENDPOINT, "timeout": 5, "target": {**TARGET, "timeout": 6}}],
            "versions.1.endpoints[0].target.timeout",
            "longer",
        ),
        (
            [{**ENDPOINT, "target": {**TARGET, "headers": {"Host": "x"}}}],
            "versions.1.endpoints[0].target.headers",
            "host is set by the connection",
        ),
        (
            [{**ENDPOINT, "target": {**TARGET, "headers": {"X-A": "1", "x-a": "2"}}}],
            "versions.1.endpoints[0].target.headers",
            "twice",
        ),
        (
            [{**ENDPOINT, "target": {**TARGET, "headers": {"X-A": " 1"}}}],
            "versions.1.endpoints[0].target.headers",
            "blanks",
        ),
    ],
)
def test_what_fields_cannot_say_together_is_refused(
    endpoints: list[dict[str, Any]], field: str, issue: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        versions_of("docs", definition(*endpoints))
    assert [(field, True)] == [(each.field, issue in each.issue) for each in refused.value.issues]


@pytest.mark.parametrize("name", ["", "1docs", "do.cs", "d" * 64, "gateway", "coatcheck2", "a\0"])
def test_a_service_is_named_as_code_may_name_one(name: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        check_service_name(name, {"gateway"})
    assert (refused.value.field, refused.value.location) == ("service", "path")


def test_the_values_of_headers_are_shown_to_nobody() -> None:
    secret = {**ENDPOINT, "target": {**TARGET, "headers": {"X-Key": "s3cret"}}}
    shown = stored(versions_of("docs", definition(secret))).definition
    assert shown.versions["1"].endpoints[0].target == msgspec.convert(
        {**TARGET, "headers": {"X-Key": "***"}, "timeout": 300.0},
        type(shown.versions["1"].endpoints[0].target),
    )
    assert b"s3cret" not in msgspec.json.encode(shown)


def concealed(
    document: ServiceDefinition, known: Concealed | None = None, org: str = "acme"
) -> Concealed:
    stored = {} if known is None else {id_: each for id_, (_, each) in known.secrets.items()}
    return conceal(org, versions_of("docs", document), stored)


def test_no_secret_is_in_a_spec_and_its_names_are() -> None:
    endpoints = [
        {**ENDPOINT, "target": {**TARGET, "headers": {"X-Key": "s3cret"}}},
        {**ENDPOINT, "path": "/b", "target": TARGET},
        {**ENDPOINT, "path": "/c", "target": REMOTE},
    ]
    found = concealed(definition(*endpoints))
    with_headers, without, remote = found.versions[1].endpoints
    assert with_headers.hidden == {"X-Key": HIDDEN}
    assert remote.hidden == {"key": HIDDEN}
    assert (without.hidden, without.target and without.target.secrets_id) == ({}, "")
    assert b"s3cret" not in msgspec.json.encode(found.versions)
    assert with_headers.target is not None
    assert remote.remote is not None
    assert {str(id_): (of, secrets.values) for id_, (of, secrets) in found.secrets.items()} == {
        with_headers.target.secrets_id: ("docs.v1.post__analyze", {"X-Key": "s3cret"}),
        remote.remote.secrets_id: ("docs.v1.post__c", {"key": "s3cret-token"}),
    }
    assert "s3cret" not in repr(found)


def test_what_is_shown_can_be_sent_back_and_changes_nothing() -> None:
    secret = {**ENDPOINT, "target": {**TARGET, "headers": {"X-Key": "s3cret", "X-B": "b"}}}
    first = concealed(definition(secret))
    document = msgspec.json.decode(
        msgspec.json.encode(stored(first.versions).definition), type=ServiceDefinition
    )
    assert concealed(document, first) == first
    changed = {**ENDPOINT, "target": {**TARGET, "headers": {"x-key": HIDDEN, "X-B": "new"}}}
    (secrets,) = concealed(definition(changed), first).secrets.values()
    assert secrets[1].values == {"x-key": "s3cret", "X-B": "new"}


def test_secrets_have_one_id_for_an_endpoint_at_an_address_whatever_they_are() -> None:
    def ids(org: str = "acme", **target: Any) -> set[Any]:
        endpoint = {**ENDPOINT, "target": {**TARGET, "headers": {"X-Key": "s3cret"}, **target}}
        return {*concealed(definition(endpoint), org=org).secrets}

    assert ids() == ids(headers={"X-Key": "another"})
    assert not ids() & ids(url="https://other.example")
    assert not ids() & ids(org="globex")


def test_a_hidden_value_does_not_go_to_another_address() -> None:
    """Else whoever may write a service could read the secrets of those before them."""
    headers = {"X-Key": "s3cret"}
    first = concealed(definition({**ENDPOINT, "target": {**TARGET, "headers": headers}}))
    elsewhere = {"type": "http", "url": "https://other.example", "headers": {"X-Key": HIDDEN}}
    with pytest.raises(InvalidInput, match="the hidden value is unknown"):
        concealed(definition({**ENDPOINT, "target": elsewhere}), first)
    with pytest.raises(InvalidInput, match="the hidden value is unknown"):
        concealed(definition({**ENDPOINT, "target": {**TARGET, "headers": {"X-B": HIDDEN}}}), first)


@pytest.mark.parametrize(
    ("url", "is_below"),
    [
        ("https://upstream.example/api", True),
        ("https://upstream.example/api/a/b?c=d", True),
        ("https://upstream.example/api?c=d", True),
        ("https://upstream.example/apis", False),
        ("https://upstream.example/", False),
        ("https://upstream.example.evil.example/api", False),
    ],
)
def test_headers_are_for_what_is_below_their_url(url: str, is_below: bool) -> None:
    for base in ("https://upstream.example/api", "https://upstream.example/api/"):
        assert TargetSecrets((UPSTREAM, base), {}).are_for_url(url) is is_below
    assert not TargetSecrets(("http", "https://upstream.example/api"), {}).are_for_url(url)
