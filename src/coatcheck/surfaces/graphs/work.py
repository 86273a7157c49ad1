"""Cuts an archive into pieces of work for its parsers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from coatcheck.archives import Entry
from coatcheck.surfaces.graphs.members import Members
from coatcheck.surfaces.graphs.parser_wire import Work

_CHECKED_AT_ONCE_MAX: Final = 200
_CHECKED_BYTES_AT_ONCE_MAX: Final = 8 * 1024 * 1024


def pieces_of_work(entries: Iterable[Entry], members: Members) -> list[Work]:
    """Files to parse one by one, the largest first so that none is left for the end; then the
    others, many small ones at once."""
    places = {entry.number: place for place, entry in enumerate(entries)}
    largest_first = sorted(members.sources, key=lambda entry: (-entry.unpacked_bytes, entry.name))
    parsing = [Work((places[entry.number],), True) for entry in largest_first]
    return [*parsing, *_checking(members.others, places)]


def _checking(others: Iterable[Entry], places: Mapping[int, int]) -> Iterable[Work]:
    together: list[int] = []
    size = 0
    for entry in others:
        together.append(places[entry.number])
        size += entry.unpacked_bytes
        if len(together) >= _CHECKED_AT_ONCE_MAX or size >= _CHECKED_BYTES_AT_ONCE_MAX:
            yield Work(tuple(together), False)
            together, size = [], 0
    if together:
        yield Work(tuple(together), False)
