"""One run of the snapshot scenario, with the real engine and a real worker.

A session takes a snapshot of the database and holds it, so that vacuum may remove nothing that is
deleted from then on. Meanwhile jobs are submitted, claimed and completed. Each sample of the load
has jobs one by one at a fixed rate, and then a burst that is drained as fast as it can be.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

import asyncpg

from bench.contenders.coatcheck import CONTENDER, ENDPOINT
from bench.job_cost import ServerReading
from bench.payload import payload_object
from bench.postgres import Postgres, PostgresMeter
from bench.processes import Child, Processes
from bench.recorder import Progress
from bench.scenarios.drain import Watch
from bench.snapshot.amounts import Amounts
from bench.snapshot.figures import TABLES, SnapshotFigure, dead, index_mb, table_mb
from bench.snapshot.history import write_history
from bench.workers import running_workers
from coatcheck import Engine, Submission

AddSample = Callable[[Mapping[str, float]], None]

_CLAIMING: Final = ("coatcheck worker exchange", "coatcheck worker claim")
_MAINTENANCE: Final = ("coatcheck maintenance",)
_SESSIONS = "SELECT pid FROM pg_stat_activity WHERE application_name = ANY ($1)"
_SIZES = """
SELECT c.relname AS name, pg_stat_get_dead_tuples(c.oid) AS dead,
       pg_table_size(c.oid) / 1e6 AS table_mb, pg_indexes_size(c.oid) / 1e6 AS index_mb
FROM unnest($1::text[]) AS t (name)
JOIN pg_class AS c ON c.oid = t.name::regclass
"""
_UNFINISHED = """
SELECT count(*)
FROM unnest($1::text[], $2::uuid[]) AS i (org_id, id)
CROSS JOIN LATERAL (
    SELECT j.state FROM jobs AS j WHERE j.org_id = i.org_id AND j.id = i.id OFFSET 0
) AS j
WHERE j.state <> 'completed'
"""
_LOOK_SECONDS: Final = 0.005
_HOLD = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM workers"


@dataclass(frozen=True)
class _Reading:
    """The server at a moment, with its sessions by what they do."""

    at: float
    server: ServerReading
    claiming: frozenset[int]
    maintaining: frozenset[int]


class SnapshotRound:
    """Measures the load for as long as the snapshot is held and passes each sample to ``add``."""

    def __init__(
        self,
        postgres: Postgres,
        processes: Processes,
        folder: Path,
        amounts: Amounts,
        add: AddSample,
    ) -> None:
        self._postgres = postgres
        self._processes = processes
        self._folder = folder
        self._amounts = amounts
        self._add = add

    async def run(self) -> None:
        amounts = self._amounts
        database = await self._postgres.create_database("coatcheck")
        try:
            await write_history(database.address, amounts.history, ENDPOINT, amounts.organisations)
            progress = Progress(self._folder, 1, record_starts=False)
            async with (
                database.meter() as meter,
                await Engine.connect(database.address) as engine,
                running_workers(
                    CONTENDER, self._processes, database.worker_address, progress, 1
                ) as workers,
                _connected(database.address) as watching,
                _connected(database.address) as holding,
            ):
                load = _Load(engine, amounts, progress, workers, watching)
                await load.paced()
                await load.burst()
                await holding.execute(_HOLD)
                began = time.monotonic()
                while time.monotonic() - began < amounts.minutes * 60:
                    minute = (time.monotonic() - began) / 60
                    self._add(await _sample(load, amounts, meter, watching, minute))
                await holding.execute("ROLLBACK")
            progress.close()
        finally:
            await database.remove()


class _Load:
    """Submits jobs, and waits until the worker has run them."""

    def __init__(
        self,
        engine: Engine,
        amounts: Amounts,
        progress: Progress,
        workers: list[Child],
        watching: asyncpg.Connection,
    ) -> None:
        self._engine = engine
        self._amounts = amounts
        self._progress = progress
        self._workers = workers
        self._watching = watching
        self._numbers = count()
        self._submitted = 0

    async def paced(self) -> None:
        began = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for at in range(self._amounts.paced_jobs):
                due = began + at / self._amounts.per_second
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                tasks.create_task(self._submit(next(self._numbers)))
        self._submitted += self._amounts.paced_jobs
        await self._all_run()

    async def burst(self) -> None:
        jobs = [
            Submission(ENDPOINT, payload_object(number), org=self._org(number))
            for number in (next(self._numbers) for _ in range(self._amounts.burst))
        ]
        tickets = await self._engine.submit_many(jobs)
        self._submitted += len(jobs)
        await self._all_run()
        orgs = [job.org for job in jobs]
        ids = [ticket.uuid for ticket in tickets]
        while await self._watching.fetchval(_UNFINISHED, orgs, ids):
            await asyncio.sleep(_LOOK_SECONDS)

    async def _submit(self, number: int) -> None:
        await self._engine.submit(ENDPOINT, payload_object(number), org=self._org(number))

    def _org(self, number: int) -> str:
        return f"org-{number % self._amounts.organisations}"

    async def _all_run(self) -> None:
        await Watch(self._progress, self._workers).until(
            lambda counts: sum(counts) >= self._submitted
        )


async def _sample(
    load: _Load,
    amounts: Amounts,
    meter: PostgresMeter,
    watching: asyncpg.Connection,
    minute: float,
) -> dict[str, float]:
    before = await _read(meter, watching)
    await load.paced()
    between = await _read(meter, watching)
    await load.burst()
    after = await _read(meter, watching)
    paced = between.server.tree.since(before.server.tree)
    burst = after.server.tree.since(between.server.tree)
    sample: dict[str, float] = {
        SnapshotFigure.MINUTE: minute,
        SnapshotFigure.PACED_CLAIM: paced.of(between.claiming) / amounts.paced_jobs * 1e6,
        SnapshotFigure.BURST_CLAIM: burst.of(after.claiming) / amounts.burst * 1e6,
        SnapshotFigure.BURST_RATE: amounts.burst / (after.at - between.at),
        SnapshotFigure.PACED_TOTAL: paced.total / amounts.paced_jobs * 1e6,
        SnapshotFigure.PACED_MAINTENANCE: 100
        * paced.of(between.maintaining)
        / (between.at - before.at),
    }
    for row in await watching.fetch(_SIZES, list(TABLES)):
        sample[dead(row["name"])] = float(row["dead"])
        sample[table_mb(row["name"])] = float(row["table_mb"])
        sample[index_mb(row["name"])] = float(row["index_mb"])
    return sample


async def _read(meter: PostgresMeter, watching: asyncpg.Connection) -> _Reading:
    at = time.monotonic()
    claiming = await watching.fetch(_SESSIONS, list(_CLAIMING))
    maintaining = await watching.fetch(_SESSIONS, list(_MAINTENANCE))
    return _Reading(
        at,
        await meter.read(),
        frozenset(pid for (pid,) in claiming),
        frozenset(pid for (pid,) in maintaining),
    )


@asynccontextmanager
async def _connected(address: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(address)
    try:
        yield connection
    finally:
        await connection.close()
