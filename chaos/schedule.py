"""The plan of a run: its faults with their times, targets and durations. Depends on the seed alone.

Each kind of fault has its own random sequence. So a run with fewer kinds has the same faults of
those kinds at the same times, and a failing seed can be narrowed down: ``--only kills``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

POSTGRES: Final = "postgres"


@dataclass(frozen=True)
class Fault:
    """One fault. ``seconds`` is its duration; ``detail`` has its other parameters."""

    number: int
    at: float
    kind: str
    target: str
    seconds: float = 0.0
    detail: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        lasting = f" for {self.seconds:.1f} s" if self.seconds else ""
        details = ", ".join(f"{name} {value}" for name, value in self.detail.items())
        return f"{self.at:8.1f} s  {self.kind:<13} {self.target}{lasting}" + (
            f"  ({details})" if details else ""
        )


@dataclass(frozen=True)
class _Drawn:
    target: str
    seconds: float = 0.0
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _Cast:
    """The possible targets of faults."""

    servers: tuple[str, ...]
    workers: tuple[str, ...]

    @property
    def members(self) -> tuple[str, ...]:
        return self.servers + self.workers


@dataclass(frozen=True)
class _Kind:
    """The seconds between faults of a kind, and how to draw one."""

    gap_min: float
    gap_max: float
    draw: Callable[[random.Random, _Cast], _Drawn]


def _kill_server(rng: random.Random, cast: _Cast) -> _Drawn:
    return _Drawn(rng.choice(cast.servers))


def _kill_worker(rng: random.Random, cast: _Cast) -> _Drawn:
    return _Drawn(rng.choice(cast.workers))


def _kill_postgres(rng: random.Random, cast: _Cast) -> _Drawn:
    # Sometimes it is down for longer than any lease.
    seconds = rng.uniform(0.2, 3.0) if rng.random() < 0.8 else rng.uniform(6.5, 8.0)
    return _Drawn(POSTGRES, seconds)


def _pause(rng: random.Random, cast: _Cast) -> _Drawn:
    # Workers more often: their leases can become stale.
    target = rng.choice(cast.workers if rng.random() < 0.7 else cast.servers)
    beyond_lease = rng.random() < 0.6
    seconds = rng.uniform(8.0, 12.0) if beyond_lease else rng.uniform(1.0, 3.0)
    return _Drawn(target, seconds, {"beyond_lease": beyond_lease})


def _drain(rng: random.Random, cast: _Cast) -> _Drawn:
    return _Drawn(rng.choice(cast.members))


def _cut(rng: random.Random, cast: _Cast) -> _Drawn:
    target, wire = _wire(rng, cast)
    share = rng.choice((0.2, 0.5, 1.0))
    return _Drawn(target, 0.0, {"wire": wire, "share": share, "reset": rng.random() < 0.7})


def _delay(rng: random.Random, cast: _Cast) -> _Drawn:
    target, wire = _wire(rng, cast)
    piece_ms = rng.choice((20, 50, 100, 300))
    return _Drawn(target, rng.uniform(2.0, 6.0), {"wire": wire, "piece_ms": piece_ms})


def _half_open(rng: random.Random, cast: _Cast) -> _Drawn:
    target, wire = _wire(rng, cast)
    return _Drawn(target, rng.uniform(2.0, 12.0), {"wire": wire, "new_too": rng.random() < 0.5})


def _lost_commit(rng: random.Random, cast: _Cast) -> _Drawn:
    return _Drawn(rng.choice(cast.members), 5.0, {"wire": "database", "count": rng.randint(1, 3)})


def _lost_answer(rng: random.Random, cast: _Cast) -> _Drawn:
    return _Drawn(rng.choice(cast.servers), 5.0, {"wire": "client", "count": rng.randint(1, 3)})


def _wire(rng: random.Random, cast: _Cast) -> tuple[str, str]:
    """A process and its connection: to the database, or a server's to its clients."""
    target = rng.choice(cast.members)
    to_clients = target in cast.servers and rng.random() < 0.5
    return target, "client" if to_clients else "database"


_KINDS: Final[Mapping[str, _Kind]] = {
    "kill-server": _Kind(2, 20, _kill_server),
    "kill-worker": _Kind(2, 20, _kill_worker),
    "kill-postgres": _Kind(5, 40, _kill_postgres),
    "pause": _Kind(5, 30, _pause),
    "drain": _Kind(10, 45, _drain),
    "cut": _Kind(2, 15, _cut),
    "delay": _Kind(8, 40, _delay),
    "half-open": _Kind(8, 45, _half_open),
    "lost-commit": _Kind(2, 12, _lost_commit),
    "lost-answer": _Kind(2, 15, _lost_answer),
}

KINDS: Final = tuple(_KINDS)
"""All kinds of faults."""

GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "kills": ("kill-server", "kill-worker", "kill-postgres"),
    "pauses": ("pause",),
    "drains": ("drain",),
    "wires": ("cut", "delay", "half-open", "lost-commit", "lost-answer"),
}
"""Names for several kinds at once."""


def gaps(kind: str) -> tuple[float, float]:
    """The minimum and maximum seconds between two faults of a kind."""
    return _KINDS[kind].gap_min, _KINDS[kind].gap_max


def plan(
    seed: int,
    seconds: float,
    *,
    servers: int = 2,
    workers: int = 3,
    only: Collection[str] = KINDS,
) -> list[Fault]:
    """The faults of a run of ``seconds``, in order. ``only`` removes some, and moves none."""
    cast = _Cast(names("server", servers), names("worker", workers))
    drawn = sorted(
        (
            (at, kind, fault)
            for kind in KINDS
            for at, fault in _of_kind(kind, random.Random(f"{seed} {kind}"), seconds, cast)
        ),
        key=lambda each: each[:2],
    )
    return [
        Fault(number, at, kind, fault.target, fault.seconds, fault.detail)
        for number, (at, kind, fault) in enumerate(drawn, start=1)
        if kind in only
    ]


def names(role: str, count: int) -> tuple[str, ...]:
    """The names of the processes of a role."""
    return tuple(f"{role}-{number}" for number in range(1, count + 1))


def _of_kind(
    kind: str, rng: random.Random, seconds: float, cast: _Cast
) -> list[tuple[float, _Drawn]]:
    found = []
    rule = _KINDS[kind]
    at = rng.uniform(rule.gap_min, rule.gap_max)
    while at < seconds:
        found.append((at, rule.draw(rng, cast)))
        at += rng.uniform(rule.gap_min, rule.gap_max)
    return found
