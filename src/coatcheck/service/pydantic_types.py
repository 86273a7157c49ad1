"""Decodes arguments of types that only pydantic supports: models, constraints, paths, addresses.

Imported when the first handler needs it: importing pydantic takes longer than everything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final, get_args, get_type_hints

import pydantic
from pydantic import TypeAdapter
from pydantic_core import core_schema

from coatcheck.domain.errors import FieldIssue
from coatcheck.service.issues import (
    ISSUES_MAX,
    Quotable,
    authors_text,
    lowered,
    missing,
    shown_name,
    unexpected,
)
from coatcheck.service.signature import declares_fields

_OWN_ERRORS: Final = frozenset(get_args(core_schema.ErrorType))
_QUOTING_ERRORS: Final = frozenset({"value_error", "assertion_error", "union_tag_invalid"})


class PydanticReader:
    """Decodes one argument from JSON."""

    def __init__(self, annotation: Any) -> None:
        self._annotation = annotation
        self._adapter: TypeAdapter[Any] = TypeAdapter(annotation)

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(_declared_names(self._annotation, set()))

    def read(self, json: bytes) -> Any:
        """Decode the argument; raises ``pydantic.ValidationError``."""
        return self._adapter.validate_json(json)

    def issues(self, name: str, json: bytes) -> list[FieldIssue]:
        """The errors of the argument called ``name``; empty if there are none."""
        try:
            self.read(json)
        except pydantic.ValidationError as error:
            details = error.errors(include_url=False)
        else:
            return []
        return [self._issue(name, detail) for detail in details[:ISSUES_MAX]]

    def _issue(self, name: str, detail: Any) -> FieldIssue:
        kind: str = detail["type"]
        location: Sequence[int | str] = detail["loc"]
        if kind == "missing":
            return missing(self._place(name, location))
        if kind == "extra_forbidden":
            parent = self._place(name, location[:-1])
            return unexpected(f"{parent}.{shown_name(str(location[-1]))}")
        return FieldIssue(self._place(name, location), self._text(kind, detail))

    def _place(self, name: str, location: Sequence[int | str]) -> str:
        """The path to a value. A mapping's keys are the caller's data, so it omits them."""
        for step in location:
            if isinstance(step, int):
                name += f"[{step}]"
            elif step in self._names:
                name += f".{step}"
            else:
                name += "[...]"
        return name

    def _text(self, kind: str, detail: Any) -> str:
        text: str = detail["msg"]
        if kind == "uuid_parsing":
            return "expected a UUID"  # pydantic's text quotes a character of the value
        if kind in _QUOTING_ERRORS or kind not in _OWN_ERRORS:
            quotable = Quotable(detail["input"], self._names)
            return authors_text(text, quotable, otherwise=f"refused ({kind})")
        return lowered(text)


def _declared_names(annotation: Any, seen: set[int]) -> set[str]:
    """The field names and aliases of every model and dataclass within a type."""
    if id(annotation) in seen:
        return set()
    seen.add(id(annotation))
    names: set[str] = set()
    inner: list[Any] = list(get_args(annotation))
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        for name, field in annotation.model_fields.items():
            names.add(name)
            names.update(_alias_names(field.validation_alias or field.alias))
            inner.append(field.annotation)
    elif declares_fields(annotation):
        hints = get_type_hints(annotation)
        names.update(hints)
        inner.extend(hints.values())
    for part in inner:
        names |= _declared_names(part, seen)
    return names


def _alias_names(alias: str | pydantic.AliasPath | pydantic.AliasChoices | None) -> set[str]:
    if isinstance(alias, str):
        return {alias}
    if isinstance(alias, pydantic.AliasPath):
        return {step for step in alias.path if isinstance(step, str)}
    if isinstance(alias, pydantic.AliasChoices):
        return {name for choice in alias.choices for name in _alias_names(choice)}
    return set()
