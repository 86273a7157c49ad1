"""The formats of error bodies: problem documents (RFC 9457), or the format of another API.

Clients of another API expect its errors. A product that serves such clients declares a
``ProblemFormat`` for its routes, and registers it for path prefixes: a request that matches no
route, or that is refused before routing, has only its path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

import msgspec

if TYPE_CHECKING:
    from coatcheck.http.routing import Route

MEDIA_TYPE: Final = "application/problem+json"


class Detail(msgspec.Struct, frozen=True):
    """One fault of a request."""

    field: str
    issue: str
    location: str


class Problem(msgspec.Struct, frozen=True, rename="camel"):
    """An error. ``code`` is stable and machine-readable; ``message`` repeats ``detail``."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    message: str
    timestamp: datetime
    request_id: str | None
    details: list[Detail]


@dataclass(frozen=True, slots=True)
class ProblemFormat:
    """A format of error bodies."""

    media_type: str
    body: type[msgspec.Struct]
    """The type of the body, for the OpenAPI document."""
    convert: Callable[[Problem], msgspec.Struct]
    """Makes the body from a problem."""


PROBLEM_DOCUMENT: Final = ProblemFormat(MEDIA_TYPE, Problem, lambda problem: problem)
"""The format of every route that declares no other."""


class UnroutedFormats:
    """The format of an error at a path that has no route, or before routing.

    The longest registered prefix of the path decides. Below a prefix, the routes whose errors are
    problem documents keep their next segment: if ``/v1`` is registered and ``/v1/things/{id}`` is
    such a route, all errors below ``/v1/things`` are problem documents.
    """

    def __init__(self, routes: Iterable[Route], registered: Mapping[str, ProblemFormat]) -> None:
        self._registered = {
            tuple(segment for segment in prefix.split("/") if segment): each
            for prefix, each in registered.items()
        }
        self._depth_max = max(map(len, self._registered), default=0)
        self._documents = frozenset(
            self._split(each.path)[1] for each in routes if each.problem_format is PROBLEM_DOCUMENT
        )

    def of(self, raw_path: str) -> ProblemFormat:
        """The format for a path as it was sent, percent-encoded."""
        prefix, with_next = self._split(raw_path)
        if prefix is None or with_next in self._documents:
            return PROBLEM_DOCUMENT
        return self._registered[prefix]

    def _split(self, path: str) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
        """The longest registered prefix of a path, if there is one, and the prefix with one more
        segment."""
        segments = tuple(path.split("/")[1:]) or ("",)
        for depth in range(self._depth_max, -1, -1):
            if segments[:depth] in self._registered:
                return segments[:depth], segments[: depth + 1]
        return None, segments[:1]


@runtime_checkable
class FormattingApp(Protocol):
    """An application that knows the format of errors at paths that have no route."""

    unrouted_formats: UnroutedFormats


def unrouted_format(app: object, raw_path: str) -> ProblemFormat:
    """The format of an error at a path, for a request that never reaches ``app``."""
    if isinstance(app, FormattingApp):
        return app.unrouted_formats.of(raw_path)
    return PROBLEM_DOCUMENT
