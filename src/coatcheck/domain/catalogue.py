"""The entries of the service catalogue: services, versions, endpoints and their targets.

They are the same whether code declared them (a worker publishes its services) or a document did (an
organisation registered an http upstream or a remote function).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from itertools import groupby
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

import msgspec

from coatcheck.domain.lanes import Lane
from coatcheck.domain.service_definition import (
    HIDDEN,
    UPSTREAM,
    Address,
    Auth,
    EndpointDefinition,
    HttpTargetDefinition,
    Method,
    PythonTargetDefinition,
    RemoteTargetDefinition,
    ServiceDefinition,
    TargetDefinition,
    VersionDefinition,
    endpoint_key,
    engine_name,
    is_service_name,
    path_parameters,
    path_shape,
)

Target = TypeVar("Target")

_NO_DOTS = r"(?!(?:\.|%2[eE]){1,2}(?:/|\Z))"
"""A parameter is never "." or "..": in an upstream's URL those would leave its path."""


class PathTable(Generic[Target]):
    """Maps methods and paths to targets."""

    __slots__ = ("_by_method",)

    def __init__(self, entries: Iterable[tuple[str, str, Target]]) -> None:
        """``entries`` are tuples of a method, a path template and their target."""
        self._by_method: dict[str, _Paths[Target]] = {}
        for method, path, target in entries:
            self._by_method.setdefault(method, _Paths()).add(path, target)

    def match(self, method: str, path: str) -> tuple[Target, dict[str, str]] | None:
        """The target for the method and path, and the values of the template's parameters."""
        paths = self._by_method.get(method)
        return None if paths is None else paths.match(path)

    def methods(self, path: str) -> tuple[str, ...]:
        """The methods that have a target for the path."""
        return tuple(
            sorted(method for method, paths in self._by_method.items() if paths.match(path))
        )


class _Paths(Generic[Target]):
    __slots__ = ("_fixed", "_templates")

    def __init__(self) -> None:
        self._fixed: dict[str, Target] = {}
        self._templates: dict[int, list[tuple[list[bool], re.Pattern[str], Target]]] = {}

    def add(self, path: str, target: Target) -> None:
        if not path_parameters(path):
            self._fixed[path] = target
            return
        parts = path.split("/")
        templates = self._templates.setdefault(len(parts), [])
        templates.append(([part.startswith("{") for part in parts], _pattern(parts), target))
        templates.sort(key=lambda template: template[0])

    def match(self, path: str) -> tuple[Target, dict[str, str]] | None:
        fixed = self._fixed.get(path)
        if fixed is not None:
            return fixed, {}
        for _, pattern, target in self._templates.get(path.count("/") + 1, ()):
            found = pattern.fullmatch(path)
            if found is not None:
                return target, found.groupdict()
        return None


def _pattern(parts: list[str]) -> re.Pattern[str]:
    return re.compile(
        "/".join(
            f"(?P<{part[1:-1]}>{_NO_DOTS}[^/]+)" if part.startswith("{") else re.escape(part)
            for part in parts
        )
    )


__all__ = [
    "UPSTREAM_ENDPOINT",
    "Auth",
    "EndpointDefinition",
    "EndpointSpec",
    "HttpTarget",
    "HttpTargetDefinition",
    "Matched",
    "Method",
    "ParameterKind",
    "PythonTargetDefinition",
    "RemoteTarget",
    "RemoteTargetDefinition",
    "ServiceDefinition",
    "ServiceSpec",
    "Source",
    "VersionDefinition",
    "VersionSpec",
]

ParameterKind = Literal["integer", "number", "boolean", "string", "other"]
Source = Literal["code", "http"]

GATEWAY_SERVICE: Final = "gateway"
"""The service that calls http upstreams of the catalogue."""
UPSTREAM_ENDPOINT = engine_name(GATEWAY_SERVICE, 1, endpoint_key("POST", "/http"))
"""The engine's one endpoint for jobs of http upstreams and remotes; their queue keys tell them
apart."""


@dataclass(frozen=True, slots=True)
class HttpTarget:
    """An upstream to call. ``headers`` are hidden values by name; their real values are sealed
    under ``secrets_id``, which is empty if there are none (``domain/service_definition.py``)."""

    url: str
    headers: Mapping[str, str] = field(repr=False)
    timeout_seconds: float
    secrets_id: str = field(default="", repr=False)

    @property
    def address(self) -> Address:
        """The recipient of the headers' values."""
        return UPSTREAM, self.url


@dataclass(frozen=True, slots=True)
class RemoteTarget:
    """A remote function. ``definition`` is for ``remotes/definitions.py``; ``secrets`` are hidden
    values by name, sealed under ``secrets_id``."""

    definition: Mapping[str, Any]
    secrets: Mapping[str, str] = field(repr=False)
    secrets_id: str = field(default="", repr=False)

    @property
    def address(self) -> Address:
        """The recipient of the secrets: the kind of service and its URL."""
        return remote_address(self.definition)


def remote_address(definition: Mapping[str, Any]) -> Address:
    """The recipient of a remote's secrets, from its definition."""
    return definition["adapter"], definition.get("url", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSpec:
    """One endpoint of one version of a service.

    ``method`` is in capitals. ``parameters`` has the JSON kind of each top-level argument, for
    those that come as text in a path or a query. For a Python function ``target`` and ``remote``
    are None; otherwise one of them is set.
    """

    service: str
    version: int
    key: str
    method: Method
    path: str
    lane: Lane = Lane.STANDARD
    retries: int | None = None
    timeout_seconds: float
    sync_timeout_seconds: float
    async_eligible: bool = True
    auth: Auth = "platform"
    keep_completed_seconds: float | None = None
    keep_failed_seconds: float | None = None
    keep_input: bool = True
    concurrency: int | None = None
    parameters: Mapping[str, ParameterKind] = field(default_factory=dict)
    target: HttpTarget | None = None
    remote: RemoteTarget | None = None

    @property
    def id(self) -> str:
        """The endpoint's unique name within its organisation: ``docs.v1.post__analyze``."""
        return f"{self.service}.v{self.version}.{self.key}"

    @property
    def engine_endpoint(self) -> str:
        """The engine's endpoint that its jobs are submitted to."""
        if self.is_registered:
            return UPSTREAM_ENDPOINT
        return engine_name(self.service, self.version, self.key)

    @property
    def queue_key(self) -> str:
        """The queue key of its jobs: the endpoint's own, or for Python the organisation's."""
        return self.id if self.is_registered else ""

    @property
    def is_registered(self) -> bool:
        """Whether a document defines it, rather than a worker's code."""
        return self.target is not None or self.remote is not None

    def within(self, seconds_max: float) -> EndpointSpec:
        """The endpoint with its timeouts limited to ``seconds_max``, if a document defines it."""
        if not self.is_registered or self.timeout_seconds <= seconds_max:
            return self
        target = self.target
        if target is not None:
            target = replace(target, timeout_seconds=min(target.timeout_seconds, seconds_max))
        return replace(self, timeout_seconds=seconds_max, target=target)

    @property
    def address(self) -> Address:
        """The recipient of the ``hidden`` values. Only for a registered endpoint."""
        target = self.target or self.remote
        assert target is not None
        return target.address

    @property
    def hidden(self) -> Mapping[str, str]:
        """The headers or secrets of its target, by name."""
        if self.target is not None:
            return self.target.headers
        return {} if self.remote is None else self.remote.secrets

    @property
    def secrets_id(self) -> str:
        """What the ``hidden`` values are sealed under; empty if there are none."""
        target = self.target or self.remote
        return "" if target is None else target.secrets_id

    def with_hidden(self, hidden: Mapping[str, str], secrets_id: str) -> EndpointSpec:
        """The same with other ``hidden`` values, sealed under ``secrets_id``."""
        if self.target is not None:
            return replace(self, target=replace(self.target, headers=hidden, secrets_id=secrets_id))
        assert self.remote is not None
        return replace(self, remote=replace(self.remote, secrets=hidden, secrets_id=secrets_id))


class Matched(NamedTuple):
    """The endpoint for a path, and the values of the path's parameters."""

    spec: EndpointSpec
    params: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class VersionSpec:
    """One version of a service."""

    version: int
    endpoints: tuple[EndpointSpec, ...]


@dataclass(frozen=True, slots=True)
class ServiceSummary:
    """A service in a list. ``versions`` has the number of endpoints of each version."""

    org: str
    workspace: str
    service: str
    source: Source
    versions: Mapping[int, int]
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    """A service with all its versions. ``org`` is empty if code declares it."""

    org: str
    workspace: str
    service: str
    source: Source
    versions: Mapping[int, VersionSpec]
    created_at: datetime
    updated_at: datetime
    _tables: Mapping[int, PathTable[EndpointSpec]] = field(init=False, repr=False, compare=False)
    _remote_ids: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        tables = {
            number: PathTable((spec.method, spec.path, spec) for spec in version.endpoints)
            for number, version in self.versions.items()
        }
        object.__setattr__(self, "_tables", tables)
        remote_ids = frozenset(spec.id for spec in self.endpoints if spec.remote is not None)
        object.__setattr__(self, "_remote_ids", remote_ids)

    @property
    def latest(self) -> int:
        """The highest version, which calls without a version get."""
        return max(self.versions)

    def match(self, version: int | None, method: str, path: str) -> Matched | None:
        """The endpoint for ``method`` on ``path`` in a version, or in the latest.

        ``path`` begins with a slash and stays percent-encoded: decode the parameters and not the
        path, or an encoded slash would split them.
        """
        table = self._tables.get(self.latest if version is None else version)
        found = None if table is None else table.match(method.upper(), path)
        return None if found is None else Matched(*found)

    def methods_for(self, version: int | None, path: str) -> tuple[str, ...]:
        """The methods of ``path``, in order; empty if there are none."""
        table = self._tables.get(self.latest if version is None else version)
        return () if table is None else table.methods(path)

    def runs_remotely(self, endpoint_id: str) -> bool:
        """Whether a remote does the work of this endpoint."""
        return endpoint_id in self._remote_ids

    @property
    def endpoints(self) -> tuple[EndpointSpec, ...]:
        """The endpoints of all versions."""
        return tuple(spec for version in self.versions.values() for spec in version.endpoints)

    @property
    def definition(self) -> ServiceDefinition:
        """The service as the document that registers it, with secrets hidden."""
        return ServiceDefinition(
            {
                str(number): VersionDefinition([_shown(spec) for spec in version.endpoints])
                for number, version in sorted(self.versions.items())
            }
        )


def _shown(spec: EndpointSpec) -> EndpointDefinition:
    return EndpointDefinition(
        method=spec.method,
        path=spec.path,
        target=_shown_target(spec),
        key=spec.key,
        async_eligible=spec.async_eligible,
        auth=spec.auth,
        lane=spec.lane,
        retries=spec.retries,
        timeout=spec.timeout_seconds,
        sync_timeout=spec.sync_timeout_seconds,
        keep_completed=spec.keep_completed_seconds,
        keep_failed=spec.keep_failed_seconds,
        keep_input=spec.keep_input,
    )


def _shown_target(spec: EndpointSpec) -> TargetDefinition:
    if spec.target is not None:
        hidden = dict.fromkeys(spec.target.headers, HIDDEN)
        return HttpTargetDefinition(spec.target.url, hidden, spec.target.timeout_seconds)
    if spec.remote is not None:
        fields = {name: value for name, value in spec.remote.definition.items() if name != "kind"}
        hidden = dict.fromkeys(spec.remote.secrets, HIDDEN)
        shown = {**fields, "type": "remote", "secrets": hidden}
        return msgspec.convert(shown, RemoteTargetDefinition)
    return PythonTargetDefinition()


_DESCRIBED_MAX: Final = 10
_VERSION: Final = re.compile(r"v([1-9][0-9]{0,3})")


@dataclass(frozen=True, slots=True)
class PublishedDefinition:
    """One definition of an endpoint, and the live workers that publish it, newest first.

    ``unserved_since`` is when the last of them was found dead; None while there are some.
    """

    spec: EndpointSpec
    published_at: datetime
    unserved_since: datetime | None
    workers: tuple[str, ...]
    boots: tuple[int, ...]

    @property
    def is_live(self) -> bool:
        return bool(self.boots)


@dataclass(frozen=True, slots=True)
class RegistrationConflict:
    """An endpoint with different definitions from live workers, the applicable one first."""

    definitions: Sequence[PublishedDefinition]

    @property
    def endpoint(self) -> str:
        return self.in_force.spec.engine_endpoint

    @property
    def in_force(self) -> PublishedDefinition:
        return self.definitions[0]

    @property
    def boots(self) -> set[int]:
        return {boot for each in self.definitions for boot in each.boots}

    @property
    def differing(self) -> list[str]:
        """The options that differ, by name."""
        specs = [each.spec for each in self.definitions]
        return [
            field.name.removesuffix("_seconds")
            for field in fields(EndpointSpec)
            if any(getattr(spec, field.name) != getattr(specs[0], field.name) for spec in specs)
        ]


def by_endpoint(
    definitions: Iterable[PublishedDefinition],
) -> list[tuple[str, list[PublishedDefinition]]]:
    """The definitions of each endpoint by its name, the applicable one first.

    ``definitions`` are in the order of the store: those of an endpoint together.
    """
    together = groupby(definitions, key=lambda each: each.spec.engine_endpoint)
    return [(endpoint, list(each)) for endpoint, each in together]


def conflicts_of(definitions: Iterable[PublishedDefinition]) -> list[RegistrationConflict]:
    """The endpoints on which live workers disagree, by name or by the calls they match.

    Definitions with different text but the same meaning do not conflict: ``30`` and ``30.0``, or
    those of a release with fewer options.
    """
    live = by_endpoint(each for each in definitions if each.is_live)
    conflicts = [RegistrationConflict(each) for _, each in live if len(each) > 1]
    answering: dict[tuple[str, int, str, str], list[PublishedDefinition]] = {}
    for _, (newest, *_) in live:
        spec = newest.spec
        call = (spec.service, spec.version, spec.method, path_shape(spec.path))
        answering.setdefault(call, []).append(newest)
    for each in answering.values():
        if len(each) > 1:
            each.sort(key=lambda one: one.published_at, reverse=True)
            conflicts.append(RegistrationConflict(each))
    return [conflict for conflict in conflicts if conflict.differing]


def unserved_of(definitions: Iterable[PublishedDefinition]) -> list[PublishedDefinition]:
    """The endpoints that no live worker publishes, each with its applicable definition."""
    return [each[0] for _, each in by_endpoint(definitions) if not each[0].is_live]


def described(conflicts: Sequence[RegistrationConflict]) -> str:
    """The endpoints, each with its differing options: ``docs.post__count (lane, retries)``."""
    shown = [
        f"{conflict.endpoint} ({', '.join(conflict.differing)})"
        for conflict in conflicts[:_DESCRIBED_MAX]
    ]
    more = len(conflicts) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


class EndpointSelector(NamedTuple):
    """What a name selects: a service, a version of it, or one endpoint of a version."""

    service: str
    version: int | None = None
    key: str | None = None


def parse_name(name: str) -> EndpointSelector | None:
    """Parse ``docs``, ``docs.v2``, ``docs.post__count`` or ``docs.v2.post__count``; None if it is
    none of these."""
    service, *rest = name.split(".")
    version = _VERSION.fullmatch(rest[0]) if rest else None
    key = rest[1:] if version else rest
    if not is_service_name(service) or len(key) > 1 or "\0" in name:
        return None
    if version is None:
        return EndpointSelector(service, 1, key[0]) if key else EndpointSelector(service)
    return EndpointSelector(service, int(version[1]), key[0] if key else None)


class Forgotten(NamedTuple):
    """The endpoints removed from the catalogue, and those that stay because their workers are live
    or went silent so recently that they may come back."""

    forgotten: tuple[str, ...]
    served: tuple[str, ...]
