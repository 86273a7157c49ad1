"""Chooses which queues give jobs to a claim under limits. Pure: the caller passes times and lots.

A claim under limits looks, chooses and takes (``core/queries/claims.py``; docs/adr/0057). Here is
the choice. Organisations take turns at the free slots of a lane, the groups of an organisation take
turns at the organisation's, and the queues of a run at the run's. A turn is one job. Who begins is
drawn by lot: a cursor would not be fair, because permits become free in an order of their own, and
it may pass over the same queue each time. An organisation draws one lot, whatever it has waiting.

Everything that bounds a claim is a ``Limit`` with a number of jobs that it still allows: free slots
of a lane, free permits, rate tokens, a run's share. Limits overlap, so a queue has its turn only
while each of its limits allows one more job. Whoever comes first is within all of them, so a choice
that could pick something does.

A rate is one moment: when a run, or a queue of it, is back in step with its rate. Each start moves
it on by the time between two starts. It may be ahead of the clock by ``RATE_BURST_SECONDS``.

The round-robin cursors of a worker's claims are here, too: the next organisation of a lane, and its
next queue. A claim goes round the organisations that have jobs, and each organisation's share its
queues. If there are more of them than slots, or a remainder, the next claim must continue where the
last one ended. An organisation with one queue needs no cursor, so most have none.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import ceil, floor
from random import Random
from typing import Final, NamedTuple, Protocol, TypeVar

from coatcheck.domain.lanes import Lane
from coatcheck.domain.limits import RATE_BURST_SECONDS, RUN_QUEUES_SCANNED_MAX

Limit = tuple[str, ...]
"""The name of a limit: its kind, and what it applies to."""

_PAUSE_SECONDS_PER_QUEUE: Final = 0.0025
"""After a scan that found nothing, the pause for each queue that it passed: a scan is short in
comparison."""
_LANES: Final = [lane.value for lane in Lane]

_Each = TypeVar("_Each")
_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True)
class RunRates:
    """The rates of a run, and the state of the scan for queues that never used their rate.

    ``ahead_seconds`` is how far the run's starts are ahead of its rate. ``looked_to`` is the key
    where the last scan ended, and ``next_look_seconds`` the time until the next one; None or a
    negative number if it is due.
    """

    per_second: float | None
    key_per_second: float | None
    ahead_seconds: float | None
    looked_to: str
    next_look_seconds: float | None

    @property
    def tokens(self) -> int | None:
        """How many tasks of the run may start now; None if the run as a whole has no rate."""
        return None if self.per_second is None else tokens(self.per_second, self.ahead_seconds)

    @property
    def scan_is_due(self) -> bool:
        return self.key_per_second is None or (self.next_look_seconds or 0.0) <= 0


@dataclass(frozen=True, slots=True, eq=False)
class QueueGroup:
    """One queue, or all queues of a run that has limits: what takes turns in an organisation."""

    lane: str
    endpoint: str
    org: str
    name: str
    limits: tuple[Limit, ...]
    rates: RunRates | None = None
    """None unless it is a run."""


@dataclass(frozen=True, slots=True, eq=False)
class Queue:
    """A queue that has jobs, with all limits that apply to it, those of its group included."""

    group: QueueGroup
    key: str
    limits: tuple[Limit, ...]


@dataclass(frozen=True, slots=True)
class KeyScan:
    """The end of a scan of a run's queues: the queues passed, those found, the last one.

    ``is_round``: it has passed the last queue, or has come back to where it began.
    """

    passed: int
    found: int
    last: str
    is_round: bool


@dataclass(frozen=True, slots=True)
class AfterScan:
    """Where the next scan of a run begins, and how long it has to wait; ``unfinished``: it did not
    see all queues, and found fewer than there is room for."""

    looked_to: str
    pause_seconds: float | None
    unfinished: bool


def tokens(per_second: float, ahead_seconds: float | None) -> int:
    """How many starts a rate allows that is so far ahead of the clock."""
    ahead = max(0.0, ahead_seconds or 0.0)
    return max(0, 1 + floor(per_second * (RATE_BURST_SECONDS - ahead)))


def is_open(limits: Iterable[Limit], free: Mapping[Limit, int]) -> bool:
    """Whether all of these limits allow another job."""
    return all(free[limit] > 0 for limit in limits)


def shares(
    groups: Sequence[QueueGroup], room: Mapping[str, int], free: Mapping[Limit, int]
) -> dict[QueueGroup, int]:
    """How many jobs a claim may take of each of these groups, if all of them get equal parts."""
    orgs = Counter(lane for lane, _ in {(group.lane, group.org) for group in groups})
    siblings = Counter((group.lane, group.org) for group in groups)
    parts = {}
    for group in groups:
        of_org = ceil(room[group.lane] / orgs[group.lane])
        of_group = ceil(of_org / siblings[group.lane, group.org])
        parts[group] = min(of_group, *(free[limit] for limit in group.limits))
    return parts


def choose(queues: Sequence[Queue], free: Mapping[Limit, int], lots: Random) -> list[Queue]:
    """The queues that give a job, in turn; once for each job.

    Urgent lanes go first. ``free`` is how many jobs each limit allows; the limit ``("lane", ...)``
    is the room of a lane.
    """
    left = dict(free)
    picks = []
    lanes = _tree(queues, lots)
    for lane in sorted(lanes, key=_LANES.index):
        while left["lane", lane] > 0 and (queue := lanes[lane].next(left)) is not None:
            for limit in queue.limits:
                left[limit] -= 1
            picks.append(queue)
    return picks


def after_scan(rates: RunRates, scan: KeyScan, keys_max: int) -> AfterScan:
    """What a scan for at most ``keys_max`` queues of a run means for the next one."""
    exhausted = scan.is_round and scan.found < keys_max
    pause = None
    if scan.is_round and scan.found == 0 and rates.key_per_second is not None:
        # A scan that began behind the first queue has passed only a part of them.
        passed = scan.passed if rates.looked_to == "" else 4 * RUN_QUEUES_SCANNED_MAX
        pause = passed * _PAUSE_SECONDS_PER_QUEUE
    return AfterScan(
        "" if exhausted else scan.last, pause, scan.found < keys_max and not scan.is_round
    )


class _Turns(Protocol):
    def next(self, left: Mapping[Limit, int]) -> Queue | None: ...


class _One:
    """A queue that gives jobs while its limits allow it."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def next(self, left: Mapping[Limit, int]) -> Queue | None:
        return self._queue if is_open(self._queue.limits, left) else None


class _Rotation:
    """Goes round its members, and drops those that have nothing: limits only become tighter."""

    def __init__(self, members: Iterable[_Turns]) -> None:
        self._members = deque(members)

    def next(self, left: Mapping[Limit, int]) -> Queue | None:
        while self._members:
            queue = self._members[0].next(left)
            if queue is not None:
                self._members.rotate(-1)
                return queue
            self._members.popleft()
        return None


def _tree(queues: Sequence[Queue], lots: Random) -> dict[str, _Turns]:
    """For each lane its organisations; in each its groups; in each of these its queues."""
    groups = _grouped(queues, lambda queue: queue.group)
    turns = {group: _rotation([_One(each) for each in of]) for group, of in groups.items()}
    lanes = {}
    for lane, in_lane in _grouped(groups, lambda group: group.lane).items():
        orgs = [*_grouped(in_lane, lambda group: group.org).values()]
        lots.shuffle(orgs)
        for org in orgs:
            lots.shuffle(org)
        lanes[lane] = _rotation([_rotation([turns[group] for group in org]) for org in orgs])
    return lanes


def _rotation(members: Sequence[_Turns]) -> _Turns:
    return _Rotation(members) if len(members) > 1 else members[0]


def _grouped(each: Iterable[_Each], key: Callable[[_Each], _Key]) -> dict[_Key, list[_Each]]:
    grouped: dict[_Key, list[_Each]] = {}
    for one in each:
        grouped.setdefault(key(one), []).append(one)
    return grouped


ORG_TURNS_MAX: Final = 10_000
"""For how many organisations with several queues a worker remembers the next queue, in each lane.
Others start with their first queue."""


class QueuePosition(NamedTuple):
    """An endpoint, and the smallest queue key that its next queue may have."""

    endpoint: str
    queue_key: str


class ClaimRotation:
    """The cursors of one lane, in one kind of claim."""

    __slots__ = ("_orgs", "_places", "after_key", "after_org")

    def __init__(self) -> None:
        self.after_org = ""
        """The organisation that the next claim starts after; empty at the beginning."""
        self.after_key = ""
        """Its queue that the next claim starts after, for a claim that looks at all queues."""
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
