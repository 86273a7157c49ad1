"""The endpoints that workers publish, and conflicts between them.

Each worker publishes the endpoints that its code declares. The catalogue combines them: of each
endpoint, the newest definition of a live worker applies.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from itertools import groupby
from typing import Final, NamedTuple

from coatcheck.domain.catalogue import EndpointSpec
from coatcheck.domain.endpoint_names import is_service_name, path_shape

_DESCRIBED_MAX: Final = 10
_VERSION: Final = re.compile(r"v([1-9][0-9]{0,3})")


@dataclass(frozen=True, slots=True)
class PublishedDefinition:
    """One definition of an endpoint, and the live workers that publish it, newest first.

    ``unserved_since`` is when the last of them was found dead; None while there are some.
    """

    spec: EndpointSpec
    published_at: datetime
    unserved_since: datetime | None
    workers: tuple[str, ...]
    boots: tuple[int, ...]

    @property
    def is_live(self) -> bool:
        return bool(self.boots)


@dataclass(frozen=True, slots=True)
class Conflict:
    """An endpoint with different definitions from live workers, the applicable one first."""

    definitions: Sequence[PublishedDefinition]

    @property
    def endpoint(self) -> str:
        return self.in_force.spec.engine_endpoint

    @property
    def in_force(self) -> PublishedDefinition:
        return self.definitions[0]

    @property
    def boots(self) -> set[int]:
        return {boot for each in self.definitions for boot in each.boots}

    @property
    def differing(self) -> list[str]:
        """The options that differ, by name."""
        specs = [each.spec for each in self.definitions]
        return [
            field.name.removesuffix("_seconds")
            for field in fields(EndpointSpec)
            if any(getattr(spec, field.name) != getattr(specs[0], field.name) for spec in specs)
        ]


def by_endpoint(
    definitions: Iterable[PublishedDefinition],
) -> list[tuple[str, list[PublishedDefinition]]]:
    """The definitions of each endpoint by its name, the applicable one first.

    ``definitions`` are in the order of the store: those of an endpoint together.
    """
    together = groupby(definitions, key=lambda each: each.spec.engine_endpoint)
    return [(endpoint, list(each)) for endpoint, each in together]


def conflicts_of(definitions: Iterable[PublishedDefinition]) -> list[Conflict]:
    """The endpoints on which live workers disagree, by name or by the calls they match.

    Definitions with different text but the same meaning do not conflict: ``30`` and ``30.0``, or
    those of a release with fewer options.
    """
    live = by_endpoint(each for each in definitions if each.is_live)
    conflicts = [Conflict(each) for _, each in live if len(each) > 1]
    answering: dict[tuple[str, int, str, str], list[PublishedDefinition]] = {}
    for _, (newest, *_) in live:
        spec = newest.spec
        call = (spec.service, spec.version, spec.method, path_shape(spec.path))
        answering.setdefault(call, []).append(newest)
    for each in answering.values():
        if len(each) > 1:
            each.sort(key=lambda one: one.published_at, reverse=True)
            conflicts.append(Conflict(each))
    return [conflict for conflict in conflicts if conflict.differing]


def unserved_of(definitions: Iterable[PublishedDefinition]) -> list[PublishedDefinition]:
    """The endpoints that no live worker publishes, each with its applicable definition."""
    return [each[0] for _, each in by_endpoint(definitions) if not each[0].is_live]


def described(conflicts: Sequence[Conflict]) -> str:
    """The endpoints, each with its differing options: ``docs.post__count (lane, retries)``."""
    shown = [
        f"{conflict.endpoint} ({', '.join(conflict.differing)})"
        for conflict in conflicts[:_DESCRIBED_MAX]
    ]
    more = len(conflicts) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


class EndpointSelector(NamedTuple):
    """What a name selects: a service, a version of it, or one endpoint of a version."""

    service: str
    version: int | None = None
    key: str | None = None


def parse_name(name: str) -> EndpointSelector | None:
    """Parse ``docs``, ``docs.v2``, ``docs.post__count`` or ``docs.v2.post__count``; None if it is
    none of these."""
    service, *rest = name.split(".")
    version = _VERSION.fullmatch(rest[0]) if rest else None
    key = rest[1:] if version else rest
    if not is_service_name(service) or len(key) > 1 or "\0" in name:
        return None
    if version is None:
        return EndpointSelector(service, 1, key[0]) if key else EndpointSelector(service)
    return EndpointSelector(service, int(version[1]), key[0] if key else None)


class Forgotten(NamedTuple):
    """The endpoints removed from the catalogue, and those that stay because their workers are live
    or went silent so recently that they may come back."""

    forgotten: tuple[str, ...]
    served: tuple[str, ...]
