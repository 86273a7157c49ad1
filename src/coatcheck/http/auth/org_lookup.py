"""Organisations, looked up by id. Those who ask meanwhile share the next statement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from coatcheck.core.queries import tenants
from coatcheck.db.batcher import Coalescer
from coatcheck.db.connection import Line
from coatcheck.db.errors import retried
from coatcheck.domain.tenants import Org
from coatcheck.http.auth.retry import looked_up

_ROWS_MAX: Final = 500


class OrgLookUp:
    """Finds organisations in the database."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._look_ups: Coalescer[str, Org | None] = Coalescer(self._find, rows_max=_ROWS_MAX)

    async def find(self, org: str) -> Org | None:
        """The organisation, if it has a row. Raises DatabaseUnavailable."""
        return await looked_up(self._look_ups.ask(org))

    async def drain(self) -> None:
        await self._look_ups.drain()

    async def _find(self, orgs: list[str]) -> Sequence[Org | None]:
        found = await retried(lambda: tenants.find_orgs(self._line, set(orgs)))
        return [found.get(org) for org in orgs]
