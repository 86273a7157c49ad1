"""What a state machine stands on: a database, everybody who acts on it, and a clock it can move.

No process, no loop of its own and no waiting: a step is one call of the product's own code, and
time passes by moving every moment in the database into the past. So a history is the same each time
it is played, and a week takes a millisecond.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import asyncpg

from coatcheck.core import Engine
from coatcheck.core.queries import leases
from coatcheck.db.connection import PINNED_PLANS, Connection
from coatcheck.domain.errors import DatabaseUnavailable, OutcomeUnknown
from coatcheck.domain.lanes import Lane, LanePolicy
from coatcheck.domain.retry import Backoff
from coatcheck.maintenance.jobs import Expirer, Rescuer
from coatcheck.maintenance.loop import Loop
from coatcheck.settings import Settings
from tests.all_products import maintenance
from tests.databases import Databases
from tests.db.claimer import KEEP_COMPLETED_SECONDS, KEEP_FAILED_SECONDS, Claimer
from tests.db.edge_guard import AsyncpgConnection

Result = TypeVar("Result")
SomeLoop = TypeVar("SomeLoop", bound=Loop)

UNIT_SECONDS: Final = 1_000.0
"""What histories count time in. Much longer than one takes to play: what is due in a unit is never
due by itself."""

LEASE_UNITS: Final = {Lane.URGENT: 1, Lane.STANDARD: 2, Lane.BULK: 4}
"""How long a worker may be silent."""

CRASH_UNITS: Final = 1
"""How long a job waits that has lost its worker more than once."""

CRASH_BACKOFF: Final = Backoff(
    base_seconds=CRASH_UNITS * UNIT_SECONDS, cap_seconds=CRASH_UNITS * UNIT_SECONDS, jitter=0.0
)

_LANES: Final = {
    lane: LanePolicy(retries=3, ack_seconds=units * UNIT_SECONDS, concurrency=8)
    for lane, units in LEASE_UNITS.items()
}


_LOOK_AGAIN: Final = "UPDATE start_deadlines SET due_at = now() WHERE due_at > now()"
_MOMENTS: Final = """
    SELECT c.table_name, array_agg(c.column_name::text ORDER BY c.column_name) AS columns
    FROM information_schema.columns AS c
    JOIN information_schema.tables AS t USING (table_schema, table_name)
    WHERE c.table_schema = current_schema() AND t.table_type = 'BASE TABLE'
      AND c.data_type = 'timestamp with time zone'
    GROUP BY c.table_name
"""


class SteppedDeployment:
    """One database, cleared for each history.

    Not a ``Deployment``: there servers and workers act by themselves, and here nothing does.
    """

    def __init__(self, dsn: str, folder: Path, tables: Sequence[str]) -> None:
        self.dsn = dsn
        self._tables = tables
        self._runner = asyncio.Runner()
        self.settings = Settings(
            database_url=dsn,
            blob_url=(folder / "blobs").as_uri(),
            keep_completed_seconds=KEEP_COMPLETED_SECONDS,
            keep_failed_seconds=KEEP_FAILED_SECONDS,
        )
        self.connection: AsyncpgConnection = self.do(asyncpg.connect(dsn))
        # Not started: nothing of it is to happen by itself.
        self.engine = self.do(_made(lambda: Engine(self.settings)))
        self.upkeep = self.do(_made(lambda: maintenance(self.settings)))
        self.loop(Rescuer).backoff = CRASH_BACKOFF
        self.line = Connection(dsn, name="players", server_settings=PINNED_PLANS)
        self._pass_time = self.do(self._statement_that_passes_time())
        self.base_seconds = 0.0

    def do(self, step: Coroutine[Any, Any, Result]) -> Result:
        """Take one step, to its end."""
        return self._runner.run(step)

    def loop(self, kind: type[SomeLoop]) -> SomeLoop:
        """The upkeep loop of this kind, to be ticked."""
        (found,) = (loop for loop in self.upkeep.loops if isinstance(loop, kind))
        return found

    def tick(self, kind: type[Loop]) -> None:
        """Have the upkeep loop of this kind do what it does each time."""
        if kind is Expirer:
            # A job that ran at the last look may wait again: as if the seconds until the next one
            # had passed.
            self.do(self.connection.execute(_LOOK_AGAIN))
        try:
            self.do(self.loop(kind).tick())
        except (DatabaseUnavailable, OutcomeUnknown):
            # Where steps are slow, its session may have ended for being silent; it tries again.
            self.do(self.loop(kind).tick())

    def clear(self) -> None:
        """Begin a history: with nothing there, and the clock at zero."""
        self.do(self._clear())

    async def _clear(self) -> None:
        await self.connection.execute(";".join(f"DELETE FROM {name}" for name in self._tables))
        self.base_seconds = await self.connection.fetchval(
            "SELECT extract(epoch FROM now())::float8"
        )
        # Which line comes first under limits is drawn by lot: the same lots each time.
        await self.line.fetch("SELECT setseed(0.5)")

    async def pass_time(self, units: int) -> None:
        """Have everything that was noted be noted so much earlier."""
        await self.connection.execute(self._pass_time.replace("$1", f"{units * UNIT_SECONDS}"))

    async def new_worker(self, endpoints: Sequence[str]) -> Claimer:
        """A worker that has just booted, with leases of so many units."""
        boot = await leases.register(self.line, "player", "0", dict(_LANES), endpoints)
        return Claimer(self.line, boot, endpoints)

    async def _statement_that_passes_time(self) -> str:
        moments = {
            row["table_name"]: row["columns"] for row in await self.connection.fetch(_MOMENTS)
        }
        return ";".join(
            f"UPDATE {table} SET "
            + ", ".join(f"{name} = {name} - $1 * interval '1 second'" for name in columns)
            for table, columns in moments.items()
            # An hour is part of a key there: moved, two rows may meet on one.
            if table in self._tables and table != "usage_hours"
        )

    def close(self) -> None:
        self.do(self._close())
        self._runner.close()

    async def _close(self) -> None:
        await self.engine.close()
        await self.upkeep.stop()
        await self.line.close()
        await self.connection.close()


async def _made(make: Any) -> Any:
    """Something that is to be made where an event loop runs."""
    return make()


@contextmanager
def stepped_deployment(
    databases: Databases, folder: Path, tables: Sequence[str]
) -> Iterator[SteppedDeployment]:
    """A database of its own, and what stands on it."""
    with databases.shared() as dsn:
        stood_on = SteppedDeployment(dsn, folder, tables)
        try:
            yield stood_on
        finally:
            stood_on.close()
