"""One round of the ablation scenario: each variant on a fresh database, right after each other."""

from collections import deque
from collections.abc import Callable, Sequence

import asyncpg

from bench.ablation.amounts import Amounts
from bench.ablation.figures import Measure, figure
from bench.ablation.job_path import path_of_jobs
from bench.ablation.variants import VARIANTS, Variant
from bench.postgres import Database, Postgres

Add = Callable[[str, float], None]

_TABLES = """
SELECT oid::regclass::text AS name FROM pg_class
WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
"""
_UPDATES = """
SELECT n_tup_upd AS updates, n_tup_hot_upd AS hot FROM pg_stat_user_tables WHERE relname = 'jobs'
"""


class AblationRound:
    """Measures each variant, in each round from another one on, and passes the figures to ``add``.

    A round that fails has no figures: those of a round are compared with each other.
    """

    def __init__(
        self,
        postgres: Postgres,
        amounts: Amounts,
        number: int,
        add: Add,
        variants: Sequence[Variant] = VARIANTS,
    ) -> None:
        self._postgres = postgres
        self._amounts = amounts
        self._add = add
        self._order = deque(variants)
        self._order.rotate(-number)

    async def run(self) -> None:
        found: dict[str, float] = {}
        for variant in self._order:
            database = await self._postgres.create_database("coatcheck")
            try:
                for measure, value in (await self._measure(variant, database)).items():
                    found[figure(variant, measure)] = value
            finally:
                await database.remove()
        for name, value in found.items():
            self._add(name, value)

    async def _measure(self, variant: Variant, database: Database) -> dict[Measure, float]:
        amounts = self._amounts
        connection = await asyncpg.connect(database.address)
        try:
            await _switch_autovacuum_off(connection)
            async with (
                database.meter() as meter,
                path_of_jobs(database.worker_address, amounts) as path,
            ):
                await path.submit(variant)
                await database.settle()
                await path.exchange(amounts.warm_up)
                before = await meter.read()
                await path.exchange(amounts.exchanges)
                after = await meter.read()
                await path.complete()
                await path.flush_counts()
            ((updates, hot),) = await connection.fetch(_UPDATES)
        finally:
            await connection.close()
        seconds = after.tree.since(before.tree).of(after.serving)
        jobs = amounts.measured_jobs
        return {
            Measure.CPU: seconds / jobs * 1e6,
            Measure.WAL: after.wal_since(before) / jobs,
            Measure.HOT: hot / updates * 100,
        }


async def _switch_autovacuum_off(connection: asyncpg.Connection) -> None:
    """It would write to the log at a time of its own."""
    for (table,) in await connection.fetch(_TABLES):
        await connection.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = false)")
