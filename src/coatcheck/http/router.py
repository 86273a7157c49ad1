"""Finds the operation for a method and a path: one dictionary look-up per segment.

A path template is made of fixed segments, ``{name}`` for one segment, ``v{version}`` for a version
number, and as its last segment ``{name:path}`` for all that is left, slashes included. They are
tried in this order: fixed, version, parameter, rest. A path that is found, but not with that
method, is not taken for a parameter or the rest of another.

The path is split as it came, still percent-encoded, so that an encoded slash parts nothing. Single
segments are decoded then; the rest of a path is left to whoever asked for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from urllib.parse import unquote

from coatcheck.http.routing import ANY_METHOD, Operation

_REST: Final = ":path}"
_VERSION_SEGMENT: Final = "v{version}"
VERSION_DIGITS_MAX: Final = 9


@dataclass(slots=True)
class _Node:
    fixed: dict[str, _Node] = field(default_factory=dict)
    version: _Node | None = None
    parameter: _Node | None = None
    rest: dict[str, Operation] = field(default_factory=dict)
    here: dict[str, Operation] = field(default_factory=dict)


class Match(NamedTuple):
    operation: Operation
    params: dict[str, str]


class Router:
    """The operations of an application, by method and path."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self._root = _Node()
        for operation in operations:
            self._add(operation)

    def find(self, method: str, path: str) -> Match | frozenset[str]:
        """The operation for a raw path, or the methods that it does take: none, if not served."""
        segments = path.split("/")
        allowed: set[str] = set()
        found = _find(self._root, segments, 1, [], "GET" if method == "HEAD" else method, allowed)
        if found is None:
            return frozenset(allowed)
        operation, values = found
        return Match(operation, dict(zip(operation.parameter_names, values, strict=True)))

    def _add(self, operation: Operation) -> None:
        node = self._root
        for segment in operation.path.split("/")[1:]:
            if segment.endswith(_REST):
                self._put(node.rest, operation)
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
        self._put(node.here, operation)

    @staticmethod
    def _put(place: dict[str, Operation], operation: Operation) -> None:
        for method in operation.methods:
            assert method not in place, f"{method} {operation.path} is declared twice"
            place[method] = operation


def _find(
    node: _Node,
    segments: Sequence[str],
    at: int,
    values: list[str],
    method: str,
    allowed: set[str],
) -> tuple[Operation, list[str]] | None:
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
    place: dict[str, Operation], values: list[str], method: str, allowed: set[str]
) -> tuple[Operation, list[str]] | None:
    operation = place.get(method) or place.get(ANY_METHOD)
    if operation is None:
        allowed.update(place)
        return None
    return operation, values


def _is_version(segment: str) -> bool:
    digits = segment[1:]
    return (
        segment[0:1] == "v"
        and digits.isascii()
        and digits.isdigit()
        and digits[0] != "0"
        and len(digits) <= VERSION_DIGITS_MAX
    )
