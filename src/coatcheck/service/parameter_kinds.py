"""The JSON kind of an argument, for callers that write it in a path or a query, where everything
is text."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin
from uuid import UUID

from coatcheck.domain.catalogue import ParameterKind

_WRITTEN_AS_TEXT: Final = (str, bytes, UUID, datetime, date, time, timedelta, Decimal)


def parameter_kind(annotation: Any) -> ParameterKind:
    """The kind of value that a type accepts; ``other`` if there are several or it is not a scalar.

    None is ignored: an optional value has the kind of its value.
    """
    kinds = {_kind(part) for part in _alternatives(annotation)}
    if kinds == {"integer", "number"}:
        return "number"
    return kinds.pop() if len(kinds) == 1 else "other"


def _alternatives(annotation: Any) -> list[Any]:
    """The members of a union and the types of a Literal's values, recursively."""
    origin = get_origin(annotation)
    for named in ("__value__", "__supertype__"):  # a type alias, a NewType
        if hasattr(annotation, named):
            return _alternatives(getattr(annotation, named))
    if origin is Annotated:
        return _alternatives(get_args(annotation)[0])
    if origin in (Union, UnionType):
        return [part for inner in get_args(annotation) for part in _alternatives(inner)]
    if origin is Literal:
        return [type(value) for value in get_args(annotation) if value is not None]
    return [] if annotation in (None, NoneType) else [annotation]


def _kind(annotation: Any) -> ParameterKind:
    if not isinstance(annotation, type):
        return "other"
    if issubclass(annotation, Enum):
        values = {_kind(type(member.value)) for member in annotation}
        return values.pop() if len(values) == 1 else "other"
    if issubclass(annotation, bool):
        return "boolean"
    if issubclass(annotation, int):
        return "integer"
    if issubclass(annotation, float):
        return "number"
    return "string" if issubclass(annotation, _WRITTEN_AS_TEXT) else "other"
