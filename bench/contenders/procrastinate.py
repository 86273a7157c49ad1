"""Procrastinate on psycopg with its C speed-ups."""

import sys

import procrastinate
import psycopg
from procrastinate.types import JSONDict

from bench.contenders.contract import Ability, Contender, Enqueued, Kept, StoreKind
from bench.contenders.procrastinate_app import make_app
from bench.payload import payload_object
from bench.submitters import concurrently, in_chunks

CLIENT_CONNECTIONS = 20
BULK_CHUNK = 2_000
WORKER_CONCURRENCY = 20

CONTENDER = Contender(
    name="procrastinate",
    label="Procrastinate",
    store=StoreKind.POSTGRES,
    abilities=frozenset({Ability.BULK}),
    client_command=(sys.executable, "-m", "bench.client_host", "bench.contenders.procrastinate"),
    worker_command=(sys.executable, "-m", "bench.contenders.procrastinate_worker"),
    distribution="procrastinate",
    settings=(
        "psycopg 3 with its binary (C) implementation, uvloop",
        f"producer: pool of {CLIENT_CONNECTIONS} connections; "
        f"bulk: batch_defer_async() of {BULK_CHUNK:,} jobs at a time",
        f"worker: concurrency={WORKER_CONCURRENCY}, listen_notify on, delete_jobs='never'",
    ),
    keeps="the job row with its arguments and its events; no result",
    environment={},
    drain_guess_per_second=500,
)


class Client:
    _app: procrastinate.App

    async def open(self, address: str) -> None:
        self._address = address
        self._app, self._noop = make_app(address, connections=CLIENT_CONNECTIONS)
        await self._app.open_async()

    async def install(self) -> None:
        await self._app.schema_manager.apply_schema_async()

    async def submit(self, number: int) -> int:
        return await self._noop.defer_async(**payload_object(number))

    async def enqueue_concurrently(self, in_flight: int, seconds: float) -> Enqueued:
        return await concurrently(self.submit, in_flight, seconds)

    async def enqueue_bulk(self, jobs: int, seconds_max: float) -> Enqueued:
        return await in_chunks(self._defer_chunk, jobs, BULK_CHUNK, seconds_max)

    async def _defer_chunk(self, numbers: range) -> None:
        payloads: list[JSONDict] = [{**payload_object(number)} for number in numbers]
        await self._noop.batch_defer_async(*payloads)

    async def unfinished(self) -> int:
        return await self._count("status IN ('todo', 'doing')")

    async def kept(self) -> Kept:
        return Kept(records=await self._count("status = 'succeeded'"), results=0)

    async def _count(self, condition: str) -> int:
        async with await psycopg.AsyncConnection.connect(self._address) as connection:
            cursor = await connection.execute(
                f"SELECT count(*) FROM procrastinate_jobs WHERE {condition}"
            )
            row = await cursor.fetchone()
        assert row is not None
        return int(row[0])

    async def close(self) -> None:
        await self._app.close_async()
