"""Cuts an archive into pieces of work for its parsers."""

from __future__ import annotations

from coatcheck.products.graphs.members import Members
from coatcheck.products.graphs.parser_wire import Work


def pieces_of_work(members: Members) -> list[Work]:
    """Files to parse one by one, the largest first so that none is left for the end."""
    largest_first = sorted(
        members.sources.items(), key=lambda member: (-member[1].unpacked_bytes, member[1].name)
    )
    return [Work(place) for place, _ in largest_first]
