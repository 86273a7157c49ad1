"""How a route is declared: once, for the router and for the OpenAPI document alike."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from http import HTTPStatus
from typing import Any, Final, Literal

import msgspec

from coatcheck.domain.identity import Scope
from coatcheck.http.problem_formats import PROBLEM_DOCUMENT, ProblemFormat
from coatcheck.http.request import Call
from coatcheck.http.response import Reply, StreamReply

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Handler = Callable[[Call], Awaitable[Reply | StreamReply]]

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


class Held(Enum):
    """When the answer of an operation is held open, and counts to the limits on those."""

    NEVER = "never"
    IF_ASKED = "if asked"
    """If the caller wants to wait, by ``Prefer`` or the query."""
    UNLESS_ASYNC = "unless async"
    """If the caller does not want to be answered at once."""
    ALWAYS = "always"


_STREAMS: Final = frozenset({"text/event-stream", "application/x-ndjson"})


@dataclass(frozen=True, slots=True)
class Answer:
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
class Operation:
    """One path, and one method or several on it: who answers, to whom, and with what."""

    methods: Sequence[Method]
    path: str
    name: str
    summary: str
    handler: Handler
    answers: Sequence[Answer]
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
    held: Held | None = None
    """When its answer is held open. Not said: what ``answers`` and ``parameters`` make of it, a
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


def _held(operation: Operation) -> Held:
    media_types = {kind for each in operation.answers for kind in (each.media_type, *each.also)}
    if media_types & _STREAMS:
        prefers = any(each.name == "Prefer" for each in operation.parameters)
        return Held.UNLESS_ASYNC if prefers else Held.ALWAYS
    return Held.IF_ASKED if "wait" in operation.query_names else Held.NEVER
