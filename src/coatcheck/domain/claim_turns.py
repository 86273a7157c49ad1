"""Where a worker's claims go on: after which organisation of a lane, and with which flow of each.

A claim goes round the organisations that have work, and each organisation's share goes round its
flows. With more of them than room, or with a remainder, the next claim has to go on where the last
one ended. An organisation with one flow needs no place of its own, so most have none.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final, NamedTuple

ORG_TURNS_MAX: Final = 10_000
"""Organisations with several flows whose next flow a worker remembers, in each lane. One that is
forgotten goes on with its first flow."""


class FlowPlace(NamedTuple):
    """An endpoint, and the first text that the next flow of it may have."""

    endpoint: str
    flow: str


class ClaimTurns:
    """The turns of one lane, in one kind of claim."""

    __slots__ = ("_orgs", "_places", "after_org")

    def __init__(self) -> None:
        self.after_org = ""
        """The organisation that the next claim starts after; empty for the first one."""
        self._places: dict[str, FlowPlace] = {}
        self._orgs: list[str] = []  # the keys of _places, sorted

    def __len__(self) -> int:
        return len(self._places)

    def next_places(self, orgs_max: int) -> dict[str, FlowPlace]:
        """Where organisations go on, for as many as the next claim comes to at most."""
        if not self._places:
            return {}
        start = bisect_right(self._orgs, self.after_org)
        order = (*self._orgs[start : start + orgs_max], *self._orgs[:start])
        return {org: self._places[org] for org in islice(order, orgs_max)}

    def move(
        self,
        sent: Iterable[str],
        places: Mapping[str, FlowPlace],
        after_org: str | None,
    ) -> None:
        """Go on from where a claim ended: ``after_org`` is None if it has seen all organisations.

        Those of ``sent`` that it has passed without saying where they go on have at most one flow
        left, and are forgotten.
        """
        for org in sent:
            if org not in places and (after_org is None or self._is_passed(org, after_org)):
                self._forget(org)
        for org, place in places.items():
            if org in self._places:
                del self._places[org]  # it goes to the end: the one set longest ago comes first
            else:
                insort(self._orgs, org)
            self._places[org] = place
        while len(self._places) > ORG_TURNS_MAX:
            self._forget(next(iter(self._places)))
        if after_org is not None:
            self.after_org = after_org

    def _is_passed(self, org: str, after_org: str) -> bool:
        """Whether a claim that went from the old place on to ``after_org`` came by."""
        began = self.after_org
        return (org <= began, org) <= (after_org <= began, after_org)

    def _forget(self, org: str) -> None:
        if self._places.pop(org, None) is not None:
            del self._orgs[bisect_right(self._orgs, org) - 1]
