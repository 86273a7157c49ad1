"""Error texts for invalid payloads: which field and why, never the value.

An error text is kept with the job for days and may reach logs, where customer data must not be.
Most texts of msgspec and pydantic name only types and bounds; the few that quote values are
replaced here. The text of a check by the handler's author (a validator, a ``__post_init__``) is
kept unless it repeats the value.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args, get_origin

import msgspec

from coatcheck.domain.errors import FieldIssue

WHOLE_PAYLOAD: Final = "payload"
"""The field name of an issue that concerns the whole payload."""

ISSUES_MAX: Final = 20
"""Of a long list of wrong items, only the first few are reported."""

_NAME_CHARACTERS_MAX: Final = 64
_REFUSED: Final = "refused by its own check"
_NOT_ALLOWED: Final = "not one of the allowed values"
_QUOTING_PREFIXES: Final = ("Invalid enum value ", "Invalid value ")

# msgspec ends a text with " - at `$.a[0]`", or " - at `key` in `$.a`" for a mapping's key.
_PLACE = re.compile(r" - at (?P<key>`key` in )?`\$(?P<path>.*)`\Z", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(?P<name>.*)`\Z", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>.*)`\Z", re.DOTALL)


def missing(field: str) -> FieldIssue:
    return FieldIssue(field, "missing")


def unexpected(field: str) -> FieldIssue:
    return FieldIssue(field, "unexpected")


def shown_name(name: str) -> str:
    """A name from the caller, cut and cleaned so that it is safe to repeat."""
    cut = name if len(name) <= _NAME_CHARACTERS_MAX else name[:_NAME_CHARACTERS_MAX] + "..."
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in cut)


def payload_issue(error: Exception) -> FieldIssue:
    """Why the payload could not be decoded as a JSON object."""
    if isinstance(error, msgspec.ValidationError):
        return FieldIssue(WHOLE_PAYLOAD, "expected a JSON object, with one field per argument")
    if isinstance(error, RecursionError):
        return FieldIssue(WHOLE_PAYLOAD, "nested too deeply")
    if isinstance(error, UnicodeDecodeError):
        return FieldIssue(WHOLE_PAYLOAD, "not valid UTF-8")
    reason = str(error).removeprefix("JSON is malformed: ")
    return FieldIssue(WHOLE_PAYLOAD, f"not valid JSON: {lowered(reason)}")


def field_issue(name: str, annotation: Any, error: Exception, quotable: Quotable) -> FieldIssue:
    """Why msgspec could not decode an argument of this name and type."""
    if isinstance(error, UnicodeDecodeError):
        return FieldIssue(name, "not valid UTF-8")
    if isinstance(error, RecursionError):
        return FieldIssue(name, "nested too deeply")
    if not isinstance(error, msgspec.DecodeError):
        return FieldIssue(name, "contains a value that cannot be a set member or a key")
    text, place = _split_place(str(error))
    field = name + place
    if found := _MISSING.fullmatch(text):
        return missing(f"{field}.{found['name']}")
    if found := _UNKNOWN.fullmatch(text):
        return unexpected(f"{field}.{shown_name(found['name'])}")
    if text.startswith(_QUOTING_PREFIXES):
        return FieldIssue(field, _allowed_values(annotation) if not place else _NOT_ALLOWED)
    if error.__cause__ is not None:
        return FieldIssue(field, authors_text(text, quotable))
    return FieldIssue(field, lowered(text))


def authors_text(text: str, quotable: Quotable, otherwise: str = _REFUSED) -> str:
    """The text of a check by the handler's author, unless it repeats the value."""
    return otherwise if quotable.is_quoted_in(text) else lowered(text)


def lowered(text: str) -> str:
    """The text for use after a colon: starts in lower case, unless it begins with an acronym."""
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


@dataclass(frozen=True, slots=True)
class Quotable:
    """A JSON value from the caller. ``declared`` are the names in it that the handler declares."""

    value: Any
    declared: frozenset[str] = frozenset()

    def is_quoted_in(self, text: str) -> bool:
        return any(leaf in text for leaf in self._leaves(self.value))

    def _leaves(self, value: Any) -> Iterator[str]:
        """Every string and number in the value, as a text would spell it."""
        if isinstance(value, str):
            if value:
                yield value
        elif isinstance(value, bool) or value is None:
            return
        elif isinstance(value, Mapping):
            for key, item in value.items():
                if key not in self.declared:
                    yield from self._leaves(key)
                yield from self._leaves(item)
        elif isinstance(value, (list, tuple)):
            for item in value:
                yield from self._leaves(item)
        else:
            # A number, or the output of an earlier check.
            yield str(value)


def _split_place(text: str) -> tuple[str, str]:
    found = _PLACE.search(text)
    if found is None:
        return text, ""
    place = found["path"] + ("[key]" if found["key"] else "")
    return text[: found.start()], place


def _allowed_values(annotation: Any) -> str:
    """The values of a Literal or an Enum; types that contain one are not inspected."""
    while get_origin(annotation) is not None and hasattr(annotation, "__metadata__"):
        annotation = get_args(annotation)[0]
    allowed: list[Any] = []
    if get_origin(annotation) is Literal:
        allowed = list(get_args(annotation))
    elif isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        allowed = [member.value for member in annotation]
    if not allowed:
        return _NOT_ALLOWED
    return "expected one of " + ", ".join(repr(value) for value in allowed)
