"""Declares a setting beside the field that holds it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

PREFIX: Final = "COATCHECK_"


@dataclass(frozen=True, slots=True)
class Setting:
    """One environment variable: its name, allowed values and meaning."""

    variable: str
    meaning: str
    allowed: str
    parse: Callable[[str], Any]
    required: bool
    shown_default: str
    secret: bool


def setting(
    variable: str,
    meaning: str,
    *,
    allowed: str,
    parse: Callable[[str], Any],
    default: str | Callable[[], str] | None = None,
    shown_default: str | None = None,
    secret: bool = False,
) -> Any:
    """A dataclass field that carries its declaration. Without a default it is required."""
    required = default is None
    declaration = Setting(
        variable=PREFIX + variable,
        meaning=meaning,
        allowed=allowed,
        parse=parse,
        required=required,
        shown_default=shown_default or ("none: required" if required else f"`{default}`"),
        secret=secret,
    )
    metadata = {"setting": declaration}
    if default is None:
        return field(repr=not secret, metadata=metadata)

    def make_default() -> Any:
        return parse(default if isinstance(default, str) else default())

    return field(default_factory=make_default, repr=not secret, metadata=metadata)
