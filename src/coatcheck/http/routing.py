"""Routes and the router. A route is declared once, for routing and for the OpenAPI document."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from http import HTTPStatus
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import unquote

import msgspec

from coatcheck.domain.tenants import Scope
from coatcheck.http.problem_formats import MEDIA_TYPE, PROBLEM_DOCUMENT, Problem, ProblemFormat
from coatcheck.http.request import Request
from coatcheck.http.response import Response, StreamResponse

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Handler = Callable[[Request], Awaitable[Response | StreamResponse]]

ANY_METHOD: Final = "*"
EVERY_METHOD: Final[tuple[Method, ...]] = ("GET", "POST", "PUT", "PATCH", "DELETE")

ULID: Final = {"type": "string", "pattern": "^[0-7][0-9A-HJKMNP-TV-Z]{25}$"}
"""The JSON schema of an id that the server makes."""

_PARAMETER = re.compile(r"\{(\w+)(?::path)?\}")


class Access(Enum):
    """Who may call a route that does not require a scope."""

    OPEN = "open"
    """Anyone; no credential is checked."""
    HANDLER = "handler"
    """The handler decides, because it depends on the endpoint or the job."""


class HoldsOpen(Enum):
    """When the response of a route is held open, and counts to the limits on open responses."""

    NEVER = "never"
    IF_ASKED = "if asked"
    """If the caller wants to wait, by ``Prefer`` or the query."""
    UNLESS_ASYNC = "unless async"
    """Unless the caller sends ``Prefer: respond-async``."""
    ALWAYS = "always"


_STREAMS: Final = frozenset({"text/event-stream", "application/x-ndjson"})


@dataclass(frozen=True, slots=True)
class ResponseSpec:
    """One possible response of a route. ``body`` is a msgspec type, or None for plain text."""

    status: HTTPStatus
    description: str
    body: type[msgspec.Struct] | None = None
    media_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    schema: Mapping[str, Any] | None = None
    """The JSON schema of a body that no msgspec type describes."""
    also: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Other media types of the body, each with its schema."""
    empty: bool = False
    """Whether there is no body."""

    @classmethod
    def problem(
        cls, status: HTTPStatus, description: str, headers: Mapping[str, str] | None = None
    ) -> ResponseSpec:
        """A refusal, whose body is a problem document."""
        return cls(status, description, Problem, MEDIA_TYPE, headers or {})


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a route: a query field, a header, or a part of the path."""

    name: str
    place: Literal["query", "header", "path"]
    description: str
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "string"})
    required: bool = False


@dataclass(frozen=True, slots=True)
class RequestBody:
    """The request body of a route: a msgspec type, or a JSON schema."""

    description: str
    body: type[msgspec.Struct] | None = None
    schema: Mapping[str, Any] | None = None
    media_type: str = "application/json"
    required: bool = True
    also: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Other media types of the body, each with its schema."""


@dataclass(frozen=True, slots=True)
class Route:
    """A path with one or more methods: its handler, who may call it, and its responses."""

    methods: Sequence[Method]
    path: str
    name: str
    summary: str
    handler: Handler
    responses: Sequence[ResponseSpec]
    tag: str
    access: Access | Scope = Access.OPEN
    description: str = ""
    parameters: Sequence[Parameter] = ()
    body: RequestBody | None = None
    any_query: bool = False
    """Whether the query may have other fields than ``parameters``, for example an upstream's."""
    ignores_query: bool = False
    """Whether unknown query fields are ignored and named in a ``Warning`` header, instead of
    refused: for routes of another API, whose clients may send fields that we do not support."""
    problem_format: ProblemFormat = PROBLEM_DOCUMENT
    """The format of its errors."""
    operable: bool = False
    """Whether the deployment's operators may name any organisation in its path."""
    operators_only: bool = False
    """Whether only the deployment's operators may call it. Others get ``missing_scope``."""
    serves_code: bool = False
    """Whether a browser may load its response as a script or a style: for this server's files."""
    held: HoldsOpen | None = None
    """When its response is held open. By default this follows from ``responses`` (a stream) and
    ``parameters`` (a ``wait``)."""
    parameter_names: Sequence[str] = field(init=False)
    """The parameters in the path, in its order."""
    query_names: Sequence[str] = field(init=False)
    """The query fields among ``parameters``."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameter_names", tuple(_PARAMETER.findall(self.path)))
        query_names = (each.name for each in self.parameters if each.place == "query")
        object.__setattr__(self, "query_names", tuple(query_names))
        if self.held is None:
            object.__setattr__(self, "held", _held(self))


def _held(route: Route) -> HoldsOpen:
    media_types = {kind for each in route.responses for kind in (each.media_type, *each.also)}
    if media_types & _STREAMS:
        prefers = any(each.name == "Prefer" for each in route.parameters)
        return HoldsOpen.UNLESS_ASYNC if prefers else HoldsOpen.ALWAYS
    return HoldsOpen.IF_ASKED if "wait" in route.query_names else HoldsOpen.NEVER


_REST: Final = ":path}"
_VERSION_SEGMENT: Final = "v{version}"
VERSION_DIGITS_MAX: Final = 9


@dataclass(slots=True)
class _Node:
    fixed: dict[str, _Node] = field(default_factory=dict)
    version: _Node | None = None
    parameter: _Node | None = None
    rest: dict[str, Route] = field(default_factory=dict)
    here: dict[str, Route] = field(default_factory=dict)


class Match(NamedTuple):
    route: Route
    params: dict[str, str]


class Router:
    """Finds the route for a method and a path, in a trie of path segments."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._root = _Node()
        for route in routes:
            self._add(route)

    def find(self, method: str, path: str) -> Match | frozenset[str]:
        """The route for a raw path; or the methods that the path supports, none if it does not
        exist."""
        segments = path.split("/")
        allowed: set[str] = set()
        found = _find(self._root, segments, 1, [], "GET" if method == "HEAD" else method, allowed)
        if found is None:
            return frozenset(allowed)
        route, values = found
        return Match(route, dict(zip(route.parameter_names, values, strict=True)))

    def _add(self, route: Route) -> None:
        node = self._root
        for segment in route.path.split("/")[1:]:
            if segment.endswith(_REST):
                self._put(node.rest, route)
                return
            if segment == _VERSION_SEGMENT:
                if node.version is None:
                    node.version = _Node()
                node = node.version
            elif segment.startswith("{"):
                if node.parameter is None:
                    node.parameter = _Node()
                node = node.parameter
            else:
                node = node.fixed.setdefault(segment, _Node())
        self._put(node.here, route)

    @staticmethod
    def _put(place: dict[str, Route], route: Route) -> None:
        for method in route.methods:
            assert method not in place, f"{method} {route.path} is declared twice"
            place[method] = route


def _find(
    node: _Node, segments: Sequence[str], at: int, values: list[str], method: str, allowed: set[str]
) -> tuple[Route, list[str]] | None:
    if at == len(segments):
        return _take(node.here, values, method, allowed)
    segment = segments[at]
    below = node.fixed.get(segment)
    if below is not None:
        found = _find(below, segments, at + 1, values, method, allowed)
        if found is not None:
            return found
    if node.version is not None and _is_version(segment):
        found = _find(node.version, segments, at + 1, [*values, segment[1:]], method, allowed)
        if found is not None:
            return found
    if node.parameter is not None and segment and not allowed:
        value = unquote(segment) if "%" in segment else segment
        found = _find(node.parameter, segments, at + 1, [*values, value], method, allowed)
        if found is not None:
            return found
    if node.rest and not allowed:
        return _take(node.rest, [*values, "/".join(segments[at:])], method, allowed)
    return None


def _take(
    place: dict[str, Route], values: list[str], method: str, allowed: set[str]
) -> tuple[Route, list[str]] | None:
    route = place.get(method) or place.get(ANY_METHOD)
    if route is None:
        allowed.update(place)
        return None
    return route, values


def _is_version(segment: str) -> bool:
    digits = segment[1:]
    return (
        segment[0:1] == "v"
        and digits.isascii()
        and digits.isdigit()
        and digits[0] != "0"
        and len(digits) <= VERSION_DIGITS_MAX
    )
