"""Finds the endpoint for a method and a path.

Paths without parameters are looked up; templates are tried as compiled patterns, only those with
the path's number of parts. If several match, a fixed part takes precedence over a parameter, from
the left: ``/users/me`` before ``/users/{id}``, and ``/a/{x}`` before ``/{y}/b``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Generic, TypeVar

from coatcheck.domain.endpoint_names import path_parameters

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
