"""Converts plain values of options and arguments without pydantic.

Typer converts every value with pydantic, even text and the ``--help`` that was not given. Importing
it costs each command 60 ms of CPU, and a server and a worker 9 MB for as long as they run. So text,
numbers and ids are converted here. Typer converts everything else, and whatever is wrong with a
value, so that its error messages are Typer's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from typer.core import TyperArgument, TyperOption

if TYPE_CHECKING:
    from typer._click import Context

_PLAIN: Final = frozenset({str, int, float, UUID})


class _NotPlain(Exception):
    """Typer must convert the value."""


def convert_plain_values() -> None:
    """Convert plain values of all options and arguments without pydantic from now on."""
    for kind in (TyperOption, TyperArgument):
        kind.process_value = _converting(kind.process_value)  # type: ignore[method-assign]


def _converting(by_typer: Callable[..., Any]) -> Callable[..., Any]:
    def process_value(parameter: TyperOption | TyperArgument, context: Context, value: Any) -> Any:
        try:
            converted = _converted(parameter, value)
        except _NotPlain:
            return by_typer(parameter, context, value)
        if parameter.required and parameter.value_is_missing(converted):
            return by_typer(parameter, context, value)
        if parameter.callback is None:
            return converted
        return parameter.callback(context, parameter, converted)

    return process_value


def _converted(parameter: TyperOption | TyperArgument, value: Any) -> Any:
    several = parameter.nargs == -1 or (isinstance(parameter, TyperOption) and parameter.multiple)
    if value is None:
        return () if several else None
    described = parameter.type_descriptor
    if described.parameter_info.parser is not None:
        raise _NotPlain
    if not several:
        return _one(parameter, described.annotation, value)
    if not isinstance(value, (list, tuple)) or not described.is_list:
        raise _NotPlain
    (kind,) = described.annotation.__args__
    return [_one(parameter, kind, each) for each in value]


def _one(parameter: TyperOption | TyperArgument, kind: Any, value: Any) -> Any:
    if kind not in _PLAIN:
        raise _NotPlain
    if type(value) is not kind:
        value = _from_text(kind, value)
    if kind is not str and not _is_within(parameter, value):
        raise _NotPlain
    return value


def _from_text(kind: Any, text: Any) -> Any:
    """Only a text that the value would be written as: others may mean something else to Typer."""
    if not isinstance(text, str):
        raise _NotPlain
    try:
        value = kind(text)
    except ValueError:
        raise _NotPlain from None
    if str(value) != text:
        raise _NotPlain
    return value


def _is_within(parameter: TyperOption | TyperArgument, value: Any) -> bool:
    info = parameter.type_descriptor.parameter_info
    return (info.min is None or value >= info.min) and (info.max is None or value <= info.max)
