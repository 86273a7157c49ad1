"""The trees of ``use`` declarations, leaf by leaf."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from coatcheck_codegraph.builder import name_of

_PATH_WORDS = frozenset({"identifier", "self", "super", "crate", "type_identifier"})


@dataclass(frozen=True, slots=True)
class Use:
    """One name of a ``use``: the path it has, and the name it gets here (``*``: all that is there;
    ``_``: none)."""

    node: Node
    path: tuple[str, ...]
    name: str


def uses(argument: Node | None) -> Iterator[Use]:
    """What ``a::{self, b as c, d::*}`` brings."""
    if argument is None:
        return
    todo: list[tuple[Node, tuple[str, ...]]] = [(argument, ())]
    while todo:
        node, before = todo.pop()
        kind = node.type
        if kind == "use_list":
            todo.extend((inner, before) for inner in reversed(node.named_children))
        elif kind == "scoped_use_list":
            listed = node.child_by_field_name("list")
            if listed is not None:
                todo.append((listed, before + _path(node.child_by_field_name("path"))))
        elif kind == "use_as_clause":
            path = before + _path(node.child_by_field_name("path"))
            if path:
                yield Use(node, _without_self(path), name_of(node.child_by_field_name("alias")))
        elif kind == "use_wildcard":
            inner = node.named_children
            yield Use(node, before + (_path(inner[0]) if inner else ()), "*")
        else:
            path = _without_self(before + _path(node))
            if path:
                yield Use(node, path, path[-1])


def _without_self(path: tuple[str, ...]) -> tuple[str, ...]:
    """``a::{self}`` is ``a``."""
    return path[:-1] if len(path) > 1 and path[-1] == "self" else path


def _path(node: Node | None) -> tuple[str, ...]:
    names: list[str] = []
    while node is not None:
        if node.type == "scoped_identifier":
            names.append(name_of(node.child_by_field_name("name")))
            node = node.child_by_field_name("path")
        else:
            if node.type in _PATH_WORDS:
                names.append(name_of(node))
            break
    return tuple(reversed(names))
