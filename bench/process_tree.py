"""The CPU time of processes and their descendants, between two readings of /proc.

The time of a process includes that of its threads, also of those that have ended. A process that
ends between the readings is not lost: the kernel adds its time to the process that waited for it.
So what a tree has used is the growth of both. Where nobody waited for a process whose time was
known, `Tree.since` raises LostTimeError: its share cannot be told any more.
"""

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_SECONDS_PER_TICK = 1 / os.sysconf("SC_CLK_TCK")
_NANOSECONDS = 1e9
_READINGS_MAX = 100


class ProcessKey(NamedTuple):
    """A process, told apart from an earlier one with the same number."""

    pid: int
    started: int


@dataclass(frozen=True)
class Usage:
    """CPU seconds so far: of a process, and of its ended children, whom it has waited for."""

    own: float
    waited: float


@dataclass(frozen=True)
class Spent:
    """CPU seconds between two readings: of the processes that live, and of all that ended."""

    living: Mapping[int, float]
    ended: float

    @property
    def total(self) -> float:
        return sum(self.living.values()) + self.ended

    def of(self, pids: Collection[int]) -> float:
        return sum(self.living.get(pid, 0.0) for pid in pids)


class Tree:
    """One reading of some processes and of all their descendants."""

    def __init__(self, usages: Mapping[ProcessKey, Usage]) -> None:
        self.usages = usages

    @classmethod
    def read(cls, leaders: Collection[int]) -> "Tree":
        """Read again if a child has ended meanwhile: it would count twice, or not at all."""
        before = _read(leaders)
        for _ in range(_READINGS_MAX):
            usages = _read(leaders)
            if _ends(usages) == _ends(before):
                return cls(usages)
            before = usages
        raise RuntimeError(f"in {_READINGS_MAX} readings a process had ended during each")

    @property
    def pids(self) -> set[int]:
        return {key.pid for key in self.usages}

    def since(self, before: "Tree") -> Spent:
        was, now = before.usages, self.usages
        none = Usage(0.0, 0.0)
        living = {key.pid: usage.own - was.get(key, none).own for key, usage in now.items()}
        waits = [usage.waited - was.get(key, none).waited for key, usage in now.items()]
        gone = {key.pid: usage for key, usage in was.items() if key not in now}
        known = sum(usage.own + usage.waited for usage in gone.values())
        ended = sum(waits) - known
        # Times of children are in ticks, user and system apart.
        precision = 2 * _SECONDS_PER_TICK * max(1, sum(wait > 0 for wait in waits))
        if ended < -precision:
            raise LostTimeError(
                f"of the processes {sorted(gone)}, which have ended, {-ended:.2f} s of CPU time are"
                " lost: nobody waited for them"
            )
        return Spent(living, max(ended, 0.0))


class LostTimeError(RuntimeError):
    """A process ended between two readings, and its CPU time cannot be found."""


class _Stat(NamedTuple):
    key: ProcessKey
    parent: int
    session: int
    user_and_system: float
    waited: float


def _read(leaders: Collection[int]) -> dict[ProcessKey, Usage]:
    return {
        stat.key: Usage(max(stat.user_and_system, _of_threads(stat.key.pid)), stat.waited)
        for stat in _members(leaders)
    }


def _ends(usages: Mapping[ProcessKey, Usage]) -> tuple[set[ProcessKey], float]:
    """What changes when a process begins or ends."""
    return set(usages), sum(usage.waited for usage in usages.values())


def _members(leaders: Collection[int]) -> list[_Stat]:
    """The leaders, their descendants, and orphans among those: they keep the leader's session."""
    stats = {stat.key.pid: stat for stat in _stats()}
    members = {pid for pid, stat in stats.items() if pid in leaders or stat.session in leaders}
    while more := {
        pid for pid, stat in stats.items() if pid not in members and stat.parent in members
    }:
        members |= more
    return [stats[pid] for pid in members]


def _stats() -> Iterator[_Stat]:
    for entry in _PROC.iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            text = (entry / "stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended since it was listed
        # The second field is the name, in parentheses, with any characters.
        fields = text.rpartition(")")[2].split()
        parent, _, session = map(int, fields[1:4])
        user, system, waited_user, waited_system = map(int, fields[11:15])
        yield _Stat(
            ProcessKey(int(entry.name), int(fields[19])),
            parent,
            session,
            (user + system) * _SECONDS_PER_TICK,
            (waited_user + waited_system) * _SECONDS_PER_TICK,
        )


def _of_threads(pid: int) -> float:
    """The time of the threads that live, which the kernel has in nanoseconds and not in ticks."""
    nanoseconds = 0
    for schedstat in _PROC.glob(f"{pid}/task/*/schedstat"):
        try:
            nanoseconds += int(schedstat.read_text().split()[0])
        except (FileNotFoundError, ProcessLookupError):
            continue  # the thread has ended: it is in the time of the process
    return nanoseconds / _NANOSECONDS
