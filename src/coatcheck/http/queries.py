"""Reads the fields of a query; raises InvalidParameter, saying which and what it may be."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from coatcheck.domain.errors import InvalidParameter
from coatcheck.http.response import RawHeaders

_DIGITS_MAX: Final = 18
_NAMED_MAX: Final = 10
_PLAIN_NAME: Final = re.compile(r"[\w.\-\[\]]{1,64}", re.ASCII)


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


def ignored_note(query: Mapping[str, str], known: Collection[str]) -> RawHeaders:
    """A ``Warning`` header that names the fields which nobody reads; none if there are none."""
    unknown = [name for name in query if name not in known]
    if not unknown:
        return ()
    named = [name for name in unknown[:_NAMED_MAX] if _PLAIN_NAME.fullmatch(name)]
    others = len(unknown) - len(named)
    if others:
        named.append("another one" if others == 1 else f"{others} others")
    note = f'299 - "ignored fields of the query, which are not known here: {", ".join(named)}"'
    return [(b"warning", note.encode("ascii"))]
