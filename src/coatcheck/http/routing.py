"""How a route is declared: once, for the router and for the OpenAPI document alike."""

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
from coatcheck.http.problem_formats import PROBLEM_DOCUMENT, ProblemFormat
from coatcheck.http.request import Request
from coatcheck.http.response import Response, StreamResponse

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Handler = Callable[[Request], Awaitable[Response | StreamResponse]]

ANY_METHOD: Final = "*"
EVERY_METHOD: Final[tuple[Method, ...]] = ("GET", "POST", "PUT", "PATCH", "DELETE")

ULID: Final = {"type": "string", "pattern": "^[0-7][0-9A-HJKMNP-TV-Z]{25}$"}
"""The schema of an id that we made."""

_PARAMETER = re.compile(r"\{(\w+)(?::path)?\}")


class Access(Enum):
    """Who may call an operation, where a scope does not say it."""

    OPEN = "open"
    """Anyone; no credential is looked at."""
    HANDLER = "handler"
    """The handler decides: it depends on the endpoint or the job that is asked for."""


class HoldsOpen(Enum):
    """When the answer of an operation is held open, and counts to the limits on those."""

    NEVER = "never"
    IF_ASKED = "if asked"
    """If the caller wants to wait, by ``Prefer`` or the query."""
    UNLESS_ASYNC = "unless async"
    """If the caller does not want to be answered at once."""
    ALWAYS = "always"


_STREAMS: Final = frozenset({"text/event-stream", "application/x-ndjson"})


@dataclass(frozen=True, slots=True)
class ResponseSpec:
    """One status a route may answer with. ``body`` is a msgspec type, or None for plain text."""

    status: HTTPStatus
    description: str
    body: type[msgspec.Struct] | None = None
    media_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    schema: Mapping[str, Any] | None = None
    """For a body that no msgspec type describes."""
    also: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Other media types that it may come as, each with its schema."""
    empty: bool = False
    """There is no body at all."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A field of the query, or a header, that an operation takes."""

    name: str
    place: Literal["query", "header", "path"]
    description: str
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "string"})
    required: bool = False


@dataclass(frozen=True, slots=True)
class RequestBody:
    """The body that an operation takes: a msgspec type, or a schema."""

    description: str
    body: type[msgspec.Struct] | None = None
    schema: Mapping[str, Any] | None = None
    media_type: str = "application/json"
    required: bool = True
    also: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Other media types that it may come as, each with its schema."""


@dataclass(frozen=True, slots=True)
class Route:
    """One path, and one method or several on it: who answers, to whom, and with what."""

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
    """Whether the query may have fields besides those of ``parameters``: somebody else's."""
    ignores_query: bool = False
    """Whether such fields are ignored, and named in a ``Warning`` header, instead of refused: for
    routes that other people's clients call, which may say more than is understood here."""
    problem_format: ProblemFormat = PROBLEM_DOCUMENT
    """How its errors are written, whoever raises them."""
    operable: bool = False
    """Whether the operators of the deployment may name any organisation in its path."""
    operators_only: bool = False
    """Whether nobody else may call it: others lack the scope, whatever theirs are."""
    serves_code: bool = False
    """Whether a browser may load what it answers as a script or a style: files of our own."""
    held: HoldsOpen | None = None
    """When its answer is held open. Not said: what ``responses`` and ``parameters`` make of it, a
    stream or something that can be waited for."""
    parameter_names: Sequence[str] = field(init=False)
    """Of the path, in its order."""
    query_names: Sequence[str] = field(init=False)
    """The fields of the query that ``parameters`` has."""

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
    """The operations of an application, by method and path."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._root = _Node()
        for route in routes:
            self._add(route)

    def find(self, method: str, path: str) -> Match | frozenset[str]:
        """The operation for a raw path, or the methods that it does take: none, if not served."""
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
    node: _Node,
    segments: Sequence[str],
    at: int,
    values: list[str],
    method: str,
    allowed: set[str],
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
