"""What the control plane needs in order to work, as checks for ``/readyz``.

The database is asked over a connection of its own: a probe must not queue behind the very traffic
whose health it reports, nor count the backlog to learn that the server answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from coatcheck.core import Engine
from coatcheck.db.connection import Line
from coatcheck.db.migrate import check_schema
from coatcheck.domain.errors import SchemaMismatch
from coatcheck.http.routes.health import Check, remembered
from coatcheck.settings import Settings

_BLOB_PROBE_SECONDS: Final = 10.0


class Readiness:
    """The checks, and the connection that they use."""

    def __init__(self, settings: Settings, engine: Engine) -> None:
        self._engine = engine
        self._line = Line(settings.database_url, name="readiness")

    def checks(self) -> Mapping[str, Check]:
        return {
            "database": self._database,
            "schema": self._schema,
            "blobs": remembered(self._blobs, _BLOB_PROBE_SECONDS),
        }

    async def close(self) -> None:
        await self._line.close()

    async def _database(self) -> str:
        try:
            await self._line.run(check_schema)
        except SchemaMismatch:
            return "reachable"  # whether it holds the right tables is the other check's to say
        return "reachable"

    async def _schema(self) -> str:
        return await self._line.run(check_schema)

    async def _blobs(self) -> str:
        await self._engine.blobs.probe()
        return "writable"
