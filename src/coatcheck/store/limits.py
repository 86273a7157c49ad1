"""Concurrency limits. One method a file of ``sql/limits``."""

from __future__ import annotations

from collections.abc import Mapping

from coatcheck.domain.job import ConcurrencyLimit
from coatcheck.store.line import Line
from coatcheck.store.sql import sql


async def set_limit(line: Line, limit: ConcurrencyLimit) -> None:
    await line.fetch(sql("limits/set"), limit.org, limit.scope, limit.name, limit.held_max)


async def clear_limit(line: Line, org: str, scope: str, name: str) -> bool:
    return bool(await line.fetch(sql("limits/clear"), org, scope, name))


async def list_limits(line: Line, org: str) -> list[ConcurrencyLimit]:
    return [ConcurrencyLimit(*row) for row in await line.fetch(sql("limits/list"), org)]


async def any_limits(line: Line) -> bool:
    rows = await line.fetch(sql("limits/any"))
    return bool(rows[0][0])


async def declare_limits(line: Line, limits: Mapping[str, int | None]) -> None:
    """The limits that code declares for its endpoints; None for an endpoint without one."""
    await line.fetch(sql("limits/declare"), list(limits), list(limits.values()))
