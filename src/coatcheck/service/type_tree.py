"""Inspects a parameter's type to decide how the parameter is decoded."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import msgspec


def mentions_pydantic(annotation: Any) -> bool:
    """Whether a type contains something that msgspec would accept but ignore.

    That is pydantic's metadata in ``Annotated``, and pydantic dataclasses, whose validators msgspec
    would skip.
    """
    return _mentions_pydantic(annotation, set())


def msgspec_knows(annotation: Any) -> bool:
    """Whether msgspec supports the type by itself. Raises TypeError for an unsupported union."""
    msgspec.json.Decoder(annotation)
    return not any(isinstance(node, msgspec.inspect.CustomType) for node in _type_nodes(annotation))


def msgspec_names(annotation: Any) -> frozenset[str]:
    """The field names of every Struct, dataclass and TypedDict within a type msgspec supports."""
    return frozenset(
        field.encode_name
        for node in _type_nodes(annotation)
        for field in getattr(node, "fields", ())
    )


def declares_fields(annotation: Any) -> bool:
    """Whether the type is a dataclass, a TypedDict or a NamedTuple, which have typed fields."""
    return isinstance(annotation, type) and (
        dataclasses.is_dataclass(annotation)
        or hasattr(annotation, "__total__")
        or hasattr(annotation, "_field_defaults")
    )


def _mentions_pydantic(annotation: Any, seen: set[int]) -> bool:
    if id(annotation) in seen:
        return False
    seen.add(id(annotation))
    for metadata in getattr(annotation, "__metadata__", ()):
        if type(metadata).__module__.partition(".")[0] in {"pydantic", "annotated_types"}:
            return True
    if hasattr(annotation, "__pydantic_validator__"):
        return True
    inner = list(get_args(annotation))
    if declares_fields(annotation):
        inner.extend(get_type_hints(annotation, include_extras=True).values())
    return any(_mentions_pydantic(part, seen) for part in inner)


def _type_nodes(annotation: Any) -> Iterator[msgspec.inspect.Type]:
    """Every type within a type, each once: a Struct may contain itself."""
    seen: set[int] = set()
    pending: list[Any] = [msgspec.inspect.type_info(annotation)]
    while pending:
        node = pending.pop()
        if isinstance(node, tuple):
            pending.extend(node)
        elif isinstance(node, msgspec.inspect.Field):
            pending.append(node.type)
        elif isinstance(node, msgspec.inspect.Type) and id(node) not in seen:
            seen.add(id(node))
            yield node
            pending.extend(getattr(node, name) for name in node.__struct_fields__)
