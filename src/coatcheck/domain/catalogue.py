"""The entries of the service catalogue: services, versions, endpoints and their targets.

They are the same whether code declared them (a worker publishes its services) or a document did (an
organisation registered an http upstream or a remote function).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

import msgspec

from coatcheck.domain.endpoint_names import endpoint_key, engine_name
from coatcheck.domain.endpoint_paths import PathTable
from coatcheck.domain.lanes import Lane
from coatcheck.domain.service_definition import (
    HIDDEN,
    Auth,
    EndpointDefinition,
    HttpTargetDefinition,
    Method,
    PythonTargetDefinition,
    RemoteTargetDefinition,
    ServiceDefinition,
    TargetDefinition,
    VersionDefinition,
)
from coatcheck.domain.target_secrets import UPSTREAM, Address

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
"""The engine's one endpoint for jobs of http upstreams and remotes; their flows tell them
apart."""


@dataclass(frozen=True, slots=True)
class HttpTarget:
    """An upstream to call. ``headers`` are hidden values by name; their real values are sealed
    under ``secrets_id``, which is empty if there are none (``domain/target_secrets.py``)."""

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
    def flow(self) -> str:
        """The flow of its jobs: the endpoint's own, or for Python the organisation's."""
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

    def runs_elsewhere(self, endpoint_id: str) -> bool:
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
