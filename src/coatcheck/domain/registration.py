"""Converts the document that registers a service to its catalogue entry, and validates it."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from msgspec import UNSET, to_builtins

from coatcheck.domain.catalogue import (
    EndpointSpec,
    HttpTarget,
    RemoteTarget,
    VersionSpec,
)
from coatcheck.domain.errors import FieldIssue, InvalidInput, InvalidParameter
from coatcheck.domain.service_definition import (
    ADAPTERS,
    HIDDEN,
    KEY_CHARACTERS_MAX,
    SERVICE_ENDPOINTS_MAX,
    EndpointDefinition,
    HttpTargetDefinition,
    RemoteTargetDefinition,
    ServiceDefinition,
    TargetSecrets,
    VersionDefinition,
    endpoint_key,
    is_path,
    is_reserved,
    is_service_name,
    path_parameters,
    path_shape,
    secrets_id,
)

_SENT_BY_THE_CONNECTION: Final = frozenset(
    {
        "connection",
        "content-length",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_RESERVED_SEGMENTS: Final = frozenset({"async", "jobs"})


def check_service_name(name: str, of_products: Container[str]) -> None:
    """Raises InvalidParameter for a name that no organisation's service can have; ``of_products``
    are those that belong to products."""
    if not is_service_name(name):
        raise InvalidParameter(
            "service",
            "must be a letter, then letters, digits, '-' or '_', at most 63 in all",
            "path",
        )
    if is_reserved(name, of_products):
        raise InvalidParameter("service", "is a name that Coatcheck keeps for itself", "path")


def check_endpoint_count(definition: ServiceDefinition) -> None:
    """Raise InvalidInput if a service has too many endpoints."""
    endpoints = sum(len(version.endpoints) for version in definition.versions.values())
    if endpoints > SERVICE_ENDPOINTS_MAX:
        issue = f"have {endpoints} endpoints in total; at most {SERVICE_ENDPOINTS_MAX} are allowed"
        raise InvalidInput([FieldIssue("versions", issue)])


def versions_of(service: str, definition: ServiceDefinition) -> dict[int, VersionSpec]:
    """The versions in a document, with its secrets.

    Whether the service may be called so is checked before (``check_service_name``). Raises
    InvalidInput with one issue for each problem.
    """
    check_endpoint_count(definition)
    issues = [*_issues(definition)]
    if issues:
        raise InvalidInput(issues)
    return {
        int(number): VersionSpec(
            int(number), tuple(_spec(service, int(number), each) for each in version.endpoints)
        )
        for number, version in definition.versions.items()
    }


@dataclass(frozen=True, slots=True)
class Concealed:
    """Versions without secrets, and the secrets to seal, by their ids."""

    versions: Mapping[int, VersionSpec]
    secrets: Mapping[UUID, tuple[str, TargetSecrets]]
    """Each with the id of its endpoint."""


def wanted_secrets(org: str, versions: Mapping[int, VersionSpec]) -> set[UUID]:
    """The ids of stored secrets that a document keeps by sending their values as hidden."""
    return {
        secrets_id(org, spec.id, spec.address)
        for spec in _endpoints(versions)
        if HIDDEN in spec.hidden.values()
    }


def conceal(
    org: str, versions: Mapping[int, VersionSpec], known: Mapping[UUID, TargetSecrets]
) -> Concealed:
    """Remove the secrets from specs. ``known`` are the stored ones: a value that a document sends
    as hidden keeps its stored value.

    It keeps it only for the same address: otherwise anyone who may write a service could send its
    secrets to an address of their own. Raises InvalidInput for an unknown value.
    """
    secrets: dict[UUID, tuple[str, TargetSecrets]] = {}
    missing: list[FieldIssue] = []

    def concealed(spec: EndpointSpec) -> EndpointSpec:
        if not spec.hidden:
            return spec
        stored_as = secrets_id(org, spec.id, spec.address)
        stored = known.get(stored_as)
        by_name = {} if stored is None else {n.lower(): v for n, v in stored.values.items()}
        values: dict[str, str] = {}
        for name, given in spec.hidden.items():
            value = by_name.get(name.lower()) if given == HIDDEN else given
            if value is None:
                field = "headers" if spec.target is not None else "secrets"
                missing.append(
                    FieldIssue(f"{spec.id}.target.{field}", "the hidden value is unknown")
                )
            else:
                values[name] = value
        secrets[stored_as] = (spec.id, TargetSecrets(spec.address, values))
        return spec.with_hidden(dict.fromkeys(spec.hidden, HIDDEN), str(stored_as))

    hidden = {
        number: VersionSpec(number, tuple(map(concealed, version.endpoints)))
        for number, version in versions.items()
    }
    if missing:
        raise InvalidInput(missing)
    return Concealed(hidden, secrets)


def _endpoints(versions: Mapping[int, VersionSpec]) -> Iterator[EndpointSpec]:
    return (spec for version in versions.values() for spec in version.endpoints)


def remote_definition(target: RemoteTargetDefinition) -> dict[str, Any]:
    """The target for ``remotes/definitions.py``, without the values of its secrets."""
    fields: dict[str, Any] = to_builtins(target)
    del fields["type"], fields["secrets"]
    return {"kind": "remote", **fields}


def _spec(service: str, version: int, given: EndpointDefinition) -> EndpointSpec:
    key = _key(given)
    target = remote = None
    if isinstance(given.target, RemoteTargetDefinition):
        remote = RemoteTarget(remote_definition(given.target), given.target.secrets)
    else:
        assert isinstance(given.target, HttpTargetDefinition)
        timeout = given.timeout_seconds if given.target.timeout is UNSET else given.target.timeout
        target = HttpTarget(given.target.url, given.target.headers, timeout)
    return EndpointSpec(
        service=service,
        version=version,
        key=key,
        method=given.method,
        path=given.path,
        lane=given.lane,
        retries=given.retries,
        timeout_seconds=given.timeout_seconds,
        sync_timeout_seconds=given.sync_timeout,
        async_eligible=given.async_eligible,
        auth=given.auth,
        keep_completed_seconds=given.keep_completed,
        keep_failed_seconds=given.keep_failed,
        keep_input=given.keep_input,
        target=target,
        remote=remote,
    )


def _key(given: EndpointDefinition) -> str:
    return endpoint_key(given.method, given.path) if given.key is UNSET else given.key


def _issues(definition: ServiceDefinition) -> Iterator[FieldIssue]:
    for number, version in definition.versions.items():
        yield from _version_issues(f"versions.{number}", version)


def _version_issues(place: str, version: VersionDefinition) -> Iterator[FieldIssue]:
    keys: set[str] = set()
    shapes: set[tuple[str, str]] = set()
    for at, endpoint in enumerate(version.endpoints):
        field = f"{place}.endpoints[{at}]"
        yield from _endpoint_issues(field, endpoint)
        key = _key(endpoint)
        if key in keys:
            yield FieldIssue(f"{field}.key", "another endpoint of the version has the same key")
        shape = (endpoint.method, path_shape(endpoint.path))
        if shape in shapes:
            yield FieldIssue(f"{field}.path", "another endpoint of the version has the same path")
        keys.add(key)
        shapes.add(shape)


def _endpoint_issues(field: str, endpoint: EndpointDefinition) -> Iterator[FieldIssue]:
    yield from _path_issues(f"{field}.path", endpoint.path)
    if len(_key(endpoint)) > KEY_CHARACTERS_MAX:
        yield FieldIssue(f"{field}.key", f"would exceed {KEY_CHARACTERS_MAX} characters; set one")
    target = endpoint.target
    if isinstance(target, RemoteTargetDefinition):
        yield from _remote_issues(f"{field}.target", target)
        return
    if not isinstance(target, HttpTargetDefinition):
        yield FieldIssue(f"{field}.target", "Python functions can only come from a worker's code")
        return
    if "?" in target.url or "#" in target.url:
        yield FieldIssue(f"{field}.target.url", "must not have a query or a fragment")
    if target.timeout is not UNSET and target.timeout > endpoint.timeout_seconds:
        yield FieldIssue(f"{field}.target.timeout", "is longer than the endpoint's own")
    yield from _header_issues(f"{field}.target.headers", target.headers)


def _remote_issues(field: str, target: RemoteTargetDefinition) -> Iterator[FieldIssue]:
    """Issues of the secrets, and of who may use the target; the adapters check the rest."""
    if target.adapter == "modal":
        yield FieldIssue(
            f"{field}.adapter",
            "only the operator can set modal up, because its client runs code that functions"
            " return; use the adapter operator with the name of such a remote",
        )
    elif target.adapter not in ADAPTERS:
        yield FieldIssue(f"{field}.adapter", f"must be one of {', '.join(ADAPTERS)}")
    if target.url is not UNSET and ("?" in target.url or "#" in target.url):
        yield FieldIssue(f"{field}.url", "must not have a query or a fragment")
    if target.secret is not UNSET and target.secret not in target.secrets:
        yield FieldIssue(f"{field}.secret", "is not one of the target's `secrets`")
    for name in target.secrets:
        if name != target.secret:
            yield FieldIssue(f"{field}.secrets", f"{name} is unused: `secret` does not name it")


def _path_issues(field: str, path: str) -> Iterator[FieldIssue]:
    if not is_path(path):
        yield FieldIssue(field, "is not a valid path template")
        return
    names = path_parameters(path)
    if len(set(names)) < len(names):
        yield FieldIssue(field, "names a parameter twice")
    first = path.split("/")[1]
    if first in _RESERVED_SEGMENTS or (first[:1] == "v" and first[1:].isdecimal()):
        yield FieldIssue(field, "conflicts with reserved paths: /async, /jobs and /v1")


def _header_issues(field: str, headers: Mapping[str, str]) -> Iterator[FieldIssue]:
    names = [name.lower() for name in headers]
    if len(set(names)) < len(names):
        yield FieldIssue(field, "names a header twice")
    for name in sorted(_SENT_BY_THE_CONNECTION.intersection(names)):
        yield FieldIssue(field, f"{name} is set by the connection")
    if any(name.strip() != name or value.strip() != value for name, value in headers.items()):
        yield FieldIssue(field, "has blanks around a name or a value")
