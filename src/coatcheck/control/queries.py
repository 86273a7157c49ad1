"""Reads the fields of a query; raises InvalidParameter, saying which and what it may be."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from coatcheck.domain.errors import InvalidParameter

_DIGITS_MAX: Final = 18


def read_whole_number(
    query: Mapping[str, str], name: str, least: int, most: int, *, default: int
) -> int:
    given = query.get(name)
    if given is None:
        return default
    number = int(given) if given.isascii() and given.isdigit() and len(given) <= _DIGITS_MAX else -1
    if not least <= number <= most:
        raise InvalidParameter(name, f"must be a whole number from {least} to {most}")
    return number


def read_choice(query: Mapping[str, str], name: str, choices: Sequence[str]) -> str | None:
    given = query.get(name)
    if given is not None and given not in choices:
        raise InvalidParameter(name, f"must be one of {', '.join(choices)}")
    return given


def read_list(query: Mapping[str, str], name: str, most: int) -> list[str]:
    """Words with commas between, at least one."""
    words = [word for word in query.get(name, "").split(",") if word]
    if not 1 <= len(words) <= most:
        raise InvalidParameter(name, f"must name 1 to {most}, with commas between")
    return words


def refuse_unknown(query: Mapping[str, str], known: Collection[str]) -> None:
    """A field that nobody reads would be silently lost."""
    for name in query:
        if name not in known:
            listed = f"; known are {', '.join(known)}" if known else ""
            raise InvalidParameter(name[:64], f"is not known here{listed}")
