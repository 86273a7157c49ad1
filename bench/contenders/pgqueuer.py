"""PgQueuer on asyncpg, with its own checklist for throughput applied."""

import sys
from datetime import timedelta

import asyncpg
from pgqueuer.core.completion import CompletionWatcher
from pgqueuer.db import AsyncpgPoolDriver
from pgqueuer.domain.types import JobId
from pgqueuer.queries import Queries

from bench.contenders.contract import Ability, Contender, Enqueued, Kept, StoreKind
from bench.payload import payload_bytes
from bench.submitters import concurrently, in_chunks

ENTRYPOINT = "noop"
CLIENT_CONNECTIONS = 64
BULK_CHUNK = 5_000
WORKER_BATCH = 500

CONTENDER = Contender(
    name="pgqueuer",
    label="PgQueuer",
    store=StoreKind.POSTGRES,
    abilities=frozenset({Ability.BULK, Ability.WAIT}),
    client_command=(sys.executable, "-m", "bench.client_host", "bench.contenders.pgqueuer"),
    worker_command=(sys.executable, "-m", "bench.contenders.pgqueuer_worker"),
    distribution="pgqueuer",
    settings=(
        "asyncpg, uvloop; durability `durable` (its default: logged tables, as all others here)",
        "its recommended autovacuum settings applied (`pgq autovac`)",
        f"producer: AsyncpgPoolDriver, {CLIENT_CONNECTIONS} connections; "
        f"bulk: one enqueue() of {BULK_CHUNK:,} jobs at a time",
        f"worker: one asyncpg connection, batch_size={WORKER_BATCH} "
        "(also the size of its finish buffer)",
        "waiter: CompletionWatcher, debounce at its default of 50 ms",
    ),
    keeps="a log row (id, status, time); the job row and its payload are deleted, no result",
    environment={},
    drain_guess_per_second=15_000,
)


class Client:
    _pool: asyncpg.Pool
    _queries: Queries
    _watcher: CompletionWatcher | None = None

    async def open(self, address: str) -> None:
        self._pool = await asyncpg.create_pool(
            address, min_size=CLIENT_CONNECTIONS, max_size=CLIENT_CONNECTIONS
        )
        self._driver = AsyncpgPoolDriver(self._pool)
        self._queries = Queries(self._driver)

    async def install(self) -> None:
        await self._queries.install()
        await self._queries.optimize_autovacuum()

    async def submit(self, number: int) -> JobId:
        (job,) = await self._queries.enqueue(ENTRYPOINT, payload_bytes(number))
        return job

    async def enqueue_concurrently(self, in_flight: int, seconds: float) -> Enqueued:
        return await concurrently(self.submit, in_flight, seconds)

    async def enqueue_bulk(self, jobs: int, seconds_max: float) -> Enqueued:
        return await in_chunks(self._enqueue_chunk, jobs, BULK_CHUNK, seconds_max)

    async def _enqueue_chunk(self, numbers: range) -> None:
        await self._queries.enqueue(
            [ENTRYPOINT] * len(numbers),
            [payload_bytes(number) for number in numbers],
            [0] * len(numbers),
        )

    async def wait(self, submitted: object) -> None:
        if self._watcher is None:
            self._watcher = CompletionWatcher(
                self._driver, queries=self._queries, refresh_interval=timedelta(seconds=5)
            )
            await self._watcher.__aenter__()
        assert isinstance(submitted, int)
        await self._watcher.wait_for(JobId(submitted))

    async def unfinished(self) -> int:
        return int(await self._pool.fetchval("SELECT count(*) FROM pgqueuer"))

    async def kept(self) -> Kept:
        records = await self._pool.fetchval(
            "SELECT count(*) FROM pgqueuer_log WHERE status = 'successful'"
        )
        return Kept(records=records, results=0)

    async def close(self) -> None:
        if self._watcher is not None:
            await self._watcher.__aexit__(None)
            self._watcher = None
        async with self._driver:
            # Leaving the driver's context gives its listener connection back to the pool.
            pass
        await self._pool.close()
