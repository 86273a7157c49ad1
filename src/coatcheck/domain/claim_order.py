"""Round-robin cursors of a worker's claims: the next organisation of a lane, and its next queue.

A claim goes round the organisations that have jobs, and each organisation's share goes round its
queues. If there are more of them than slots, or a remainder, the next claim must continue where the
last one ended. An organisation with one queue needs no cursor, so most have none.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final, NamedTuple

ORG_TURNS_MAX: Final = 10_000
"""For how many organisations with several queues a worker remembers the next queue, in each lane.
Others start with their first queue."""


class QueuePosition(NamedTuple):
    """An endpoint, and the smallest queue key that its next queue may have."""

    endpoint: str
    queue_key: str


class ClaimRotation:
    """The cursors of one lane, in one kind of claim."""

    __slots__ = ("_orgs", "_places", "after_org")

    def __init__(self) -> None:
        self.after_org = ""
        """The organisation that the next claim starts after; empty at the beginning."""
        self._places: dict[str, QueuePosition] = {}
        self._orgs: list[str] = []  # the keys of _places, sorted

    def __len__(self) -> int:
        return len(self._places)

    def next_places(self, orgs_max: int) -> dict[str, QueuePosition]:
        """The queue cursors of the organisations that the next claim may reach."""
        if not self._places:
            return {}
        start = bisect_right(self._orgs, self.after_org)
        order = (*self._orgs[start : start + orgs_max], *self._orgs[:start])
        return {org: self._places[org] for org in islice(order, orgs_max)}

    def move(
        self,
        sent: Iterable[str],
        places: Mapping[str, QueuePosition],
        after_org: str | None,
    ) -> None:
        """Advance to where a claim ended: ``after_org`` is None if it saw all organisations.

        Organisations in ``sent`` that it passed without a new cursor have at most one queue left,
        and their cursors are dropped.
        """
        for org in sent:
            if org not in places and (after_org is None or self._is_passed(org, after_org)):
                self._forget(org)
        for org, place in places.items():
            if org in self._places:
                del self._places[org]  # re-inserted at the end: the oldest entry comes first
            else:
                insort(self._orgs, org)
            self._places[org] = place
        while len(self._places) > ORG_TURNS_MAX:
            self._forget(next(iter(self._places)))
        if after_org is not None:
            self.after_org = after_org

    def _is_passed(self, org: str, after_org: str) -> bool:
        """Whether a claim that went from the old position to ``after_org`` passed ``org``."""
        began = self.after_org
        return (org <= began, org) <= (after_org <= began, after_org)

    def _forget(self, org: str) -> None:
        if self._places.pop(org, None) is not None:
            del self._orgs[bisect_right(self._orgs, org) - 1]
