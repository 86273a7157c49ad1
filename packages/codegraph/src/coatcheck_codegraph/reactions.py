"""What the files of a project say is to be done with values, as numbers in arrays.

There are very many of these facts, and most never come to matter: an object for each would cost
more memory than all the rest.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Final

from coatcheck_codegraph.flow import UNKNOWN, CallFlow


class Kind:
    """What is to be done with whatever a value is."""

    COPY: Final = 0
    LOAD: Final = 1
    STORE: Final = 2
    LOAD_ITEM: Final = 3
    STORE_ITEM: Final = 4
    CALL: Final = 5
    PROTOCOL: Final = 6
    SUPER: Final = 7


NONE: Final = -1
"""The end of a chain."""


class Reactions:
    """What the files say is to be done with values. There are very many, and most never happen:
    they are numbers in arrays, chained by value."""

    def __init__(self) -> None:
        self.first = array("i")
        self.following = array("i")
        self.kinds = bytearray()
        self.one = array("i")
        self.other = array("i")
        self.names: list[str] = []
        self.keys: list[int] = []
        self._name_numbers: dict[str, int] = {}
        self._key_numbers: dict[int, int] = {}
        self._calls = array("i")

    def reserve(self, values: int) -> None:
        self.first = array("i", [NONE]) * values

    def note(self, value: int, kind: int, one: int, other: int) -> None:
        self.following.append(self.first[value])
        self.first[value] = len(self.kinds)
        self.kinds.append(kind)
        self.one.append(one)
        self.other.append(other)

    def name(self, name: str) -> int:
        number = self._name_numbers.get(name)
        if number is None:
            number = self._name_numbers[name] = len(self.names)
            self.names.append(name)
        return number

    def key(self, key: int) -> int:
        number = self._key_numbers.get(key)
        if number is None:
            number = self._key_numbers[key] = len(self.keys)
            self.keys.append(key)
        return number

    def pack(self, call: CallFlow, base: int) -> int:
        """Keep a call whose values are numbered from ``base``; returns where."""
        place = len(self._calls)

        def moved(value: int) -> int:
            return base + value if value else UNKNOWN

        self._calls.extend(
            (
                call.line,
                call.caller,
                call.ordinal,
                moved(call.function),
                moved(call.result),
                moved(call.rest),
                moved(call.keywords),
                call.constructs_only,
                len(call.positional),
                len(call.named),
                *map(moved, call.positional),
            )
        )
        for name, value in call.named:
            self._calls.extend((self.name(name), moved(value)))
        return place

    def call(self, place: int) -> CallFlow:
        calls = self._calls
        line, caller, ordinal, function, result, rest, keywords, only, positional, named = calls[
            place : place + 10
        ]
        place += 10
        arguments = tuple(calls[place : place + positional])
        place += positional
        by_name = tuple(
            (self.names[calls[at]], calls[at + 1]) for at in range(place, place + 2 * named, 2)
        )
        return CallFlow(
            line,
            caller,
            ordinal,
            function,
            result,
            arguments,
            by_name,
            rest,
            keywords,
            bool(only),
        )

    def copies(self) -> Iterator[tuple[int, int]]:
        """(from, to)"""
        for value, begin in enumerate(self.first):
            at = begin
            while at != NONE:
                if self.kinds[at] == Kind.COPY:
                    yield value, self.one[at]
                at = self.following[at]


class Origins:
    """Where values come from: copies, backwards."""

    def __init__(self, values: int) -> None:
        self._first = array("i", [NONE]) * values
        self._following = array("i")
        self._origins = array("i")

    def note(self, to: int, value: int) -> None:
        self._following.append(self._first[to])
        self._first[to] = len(self._origins)
        self._origins.append(value)

    def of(self, value: int) -> Iterator[int]:
        at = self._first[value] if value < len(self._first) else NONE
        while at != NONE:
            yield self._origins[at]
            at = self._following[at]
