"""The definition of an attack: its requests, the expected refusals, and the allowed cost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chaos.abuse.target import Target

Figures = dict[str, int | str]
"""The counts of an attack: answers by status, bytes, jobs. Never seconds."""


@dataclass(frozen=True, kw_only=True)
class Attack:
    """One attack. ``run`` performs it, limited in count and time, and returns its counts.

    ``target.short`` is true in the tests: fewer clients and bytes, the same attack.
    ``complaints`` judges the figures, which always include ``rss_growth_mib`` of the process that
    ``victim`` names; it looks at counts and bytes alone, so that it can be asserted in a test.
    """

    name: str
    row: int
    title: str
    run: Callable[[Target], Awaitable[Figures]]
    complaints: Callable[[Figures], list[str]]
    victim: str = "server"
    """The process whose memory is measured: ``server`` or ``worker``."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of all processes; variables without their prefix."""


def at_most(figures: Figures, name: str, most: int) -> list[str]:
    """A complaint if a figure is above its maximum."""
    value = figures[name]
    assert isinstance(value, int), name
    return [f"{name} is {value:,}, at most {most:,} was expected"] if value > most else []


def at_least(figures: Figures, name: str, least: int) -> list[str]:
    """A complaint if a figure is below its minimum."""
    value = figures[name]
    assert isinstance(value, int), name
    return [f"{name} is {value:,}, at least {least:,} was expected"] if value < least else []
