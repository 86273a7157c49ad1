"""The catalogue's entries: services, their versions and endpoints, and who does the work.

The same whether code declared them (a worker publishes what it serves) or a document did (an
organisation registered an http upstream, or a function that runs elsewhere).
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
"""The engine's one endpoint for jobs that an http upstream or a remote does; their flows tell them
apart."""


@dataclass(frozen=True, slots=True)
class HttpTarget:
    """An upstream to call. ``headers`` are hidden values by name; what they hide is sealed under
    ``secrets_id``, which is empty where there is none (``domain/target_secrets.py``)."""

    url: str
    headers: Mapping[str, str] = field(repr=False)
    timeout_seconds: float
    secrets_id: str = field(default="", repr=False)

    @property
    def address(self) -> Address:
        """Who is sent the values of the headers."""
        return UPSTREAM, self.url


@dataclass(frozen=True, slots=True)
class RemoteTarget:
    """A function that runs elsewhere. ``definition`` is what ``remotes/definitions.py`` reads;
    ``secrets`` are hidden values by the names that it has, sealed under ``secrets_id``."""

    definition: Mapping[str, Any]
    secrets: Mapping[str, str] = field(repr=False)
    secrets_id: str = field(default="", repr=False)

    @property
    def address(self) -> Address:
        """Who is sent the secrets: the service, and where it is."""
        return remote_address(self.definition)


def remote_address(definition: Mapping[str, Any]) -> Address:
    """Who is sent the secrets of a remote that is defined so."""
    return definition["adapter"], definition.get("url", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSpec:
    """One endpoint of one version of a service.

    ``method`` is in capitals. ``parameters`` says what kind of JSON value each top-level argument
    is, for those that come as text in a path or a query. ``target`` and ``remote`` are None for a
    Python function, and one of them is for any other.
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
        """The endpoint's name among all of its organisation's: ``docs.v1.post__analyze``."""
        return f"{self.service}.v{self.version}.{self.key}"

    @property
    def engine_endpoint(self) -> str:
        """The engine's endpoint that its jobs are submitted to."""
        if self.is_registered:
            return UPSTREAM_ENDPOINT
        return engine_name(self.service, self.version, self.key)

    @property
    def flow(self) -> str:
        """The flow of its jobs: of their own unless it is Python's, then the organisation's."""
        return self.id if self.is_registered else ""

    @property
    def is_registered(self) -> bool:
        """Whether a document says who does the work, and no worker's code."""
        return self.target is not None or self.remote is not None

    def within(self, seconds_max: float) -> EndpointSpec:
        """The endpoint as it may be called: what a document says takes no longer than this."""
        if not self.is_registered or self.timeout_seconds <= seconds_max:
            return self
        target = self.target
        if target is not None:
            target = replace(target, timeout_seconds=min(target.timeout_seconds, seconds_max))
        return replace(self, timeout_seconds=seconds_max, target=target)

    @property
    def address(self) -> Address:
        """Who is sent what is ``hidden``. Only of an endpoint that is registered."""
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
        """The same with other ``hidden`` values, which are sealed under ``secrets_id``."""
        if self.target is not None:
            return replace(self, target=replace(self.target, headers=hidden, secrets_id=secrets_id))
        assert self.remote is not None
        return replace(self, remote=replace(self.remote, secrets=hidden, secrets_id=secrets_id))


class Matched(NamedTuple):
    """The endpoint that answers a path, and the values of the path's parameters."""

    spec: EndpointSpec
    params: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class VersionSpec:
    """One version of a service."""

    version: int
    endpoints: tuple[EndpointSpec, ...]


@dataclass(frozen=True, slots=True)
class ServiceSummary:
    """A service as a list shows it. ``versions`` says how many endpoints each version has."""

    org: str
    workspace: str
    service: str
    source: Source
    versions: Mapping[int, int]
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    """A service, and all of its versions. ``org`` is empty for one that code declares."""

    org: str
    workspace: str
    service: str
    source: Source
    versions: Mapping[int, VersionSpec]
    created_at: datetime
    updated_at: datetime
    _tables: Mapping[int, PathTable[EndpointSpec]] = field(init=False, repr=False, compare=False)
    _elsewhere: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        tables = {
            number: PathTable((spec.method, spec.path, spec) for spec in version.endpoints)
            for number, version in self.versions.items()
        }
        object.__setattr__(self, "_tables", tables)
        elsewhere = frozenset(spec.id for spec in self.endpoints if spec.remote is not None)
        object.__setattr__(self, "_elsewhere", elsewhere)

    @property
    def latest(self) -> int:
        """The highest version: what a call that names none gets."""
        return max(self.versions)

    def match(self, version: int | None, method: str, path: str) -> Matched | None:
        """The endpoint that answers ``method`` on ``path`` in a version, or in the latest.

        ``path`` begins with a slash. What is percent-encoded in it stays so: decode the parameters
        and not the path, or an encoded slash will part them.
        """
        table = self._tables.get(self.latest if version is None else version)
        found = None if table is None else table.match(method.upper(), path)
        return None if found is None else Matched(*found)

    def methods_for(self, version: int | None, path: str) -> tuple[str, ...]:
        """The methods that ``path`` answers, in order; none if nothing is there."""
        table = self._tables.get(self.latest if version is None else version)
        return () if table is None else table.methods(path)

    def runs_elsewhere(self, endpoint_id: str) -> bool:
        """Whether a remote does the work of the endpoint of that id."""
        return endpoint_id in self._elsewhere

    @property
    def endpoints(self) -> tuple[EndpointSpec, ...]:
        """The endpoints of all versions."""
        return tuple(spec for version in self.versions.values() for spec in version.endpoints)

    @property
    def definition(self) -> ServiceDefinition:
        """The service as the document that registers it, with what is secret hidden."""
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
