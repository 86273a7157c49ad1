"""Coatcheck itself, through its public engine API and its own worker command."""

import sys

import asyncpg

from bench.contenders.coatcheck_history import claim_cost, write_history
from bench.contenders.contract import Ability, Contender, Enqueued, Kept, StoreKind
from bench.payload import payload_object
from bench.submitters import concurrently, in_chunks
from coatcheck import Engine, Submission, Ticket
from coatcheck.db.migrate import migrate

ENDPOINT = "noop.post__run"
BULK_CHUNK = 10_000
WAIT_SECONDS_MAX = 30

CONTENDER = Contender(
    name="coatcheck",
    label="Coatcheck",
    store=StoreKind.POSTGRES,
    abilities=frozenset({Ability.BULK, Ability.WAIT, Ability.CLAIM_COST}),
    client_command=(sys.executable, "-m", "bench.client_host", "bench.contenders.coatcheck"),
    worker_command=(
        *(sys.executable, "-m", "coatcheck.cli", "worker"),
        "bench.contenders.coatcheck_service:noop",
    ),
    distribution="coatcheck",
    settings=(
        "everything at its default: fairness, limits, fencing and retention on",
        f"producer: Engine.submit(); bulk: Engine.submit_many() of {BULK_CHUNK:,} jobs at a time",
        "waiter: Engine.wait()",
    ),
    keeps="the job row with its result and times, by default for 24 hours; not the payload",
    environment={},
    drain_guess_per_second=20_000,
)


class Client:
    _engine: Engine | None = None

    async def open(self, address: str) -> None:
        self._address = address
        self._connection = await asyncpg.connect(address)
        # An engine refuses a database without its tables; `install` is called on one.
        if await self._connection.fetchval("SELECT to_regclass('jobs')") is not None:
            self._engine = await Engine.connect(address)

    async def install(self) -> None:
        await migrate(self._address)

    async def submit(self, number: int) -> Ticket:
        return await self._opened().submit(ENDPOINT, payload_object(number))

    async def enqueue_concurrently(self, in_flight: int, seconds: float) -> Enqueued:
        return await concurrently(self.submit, in_flight, seconds)

    async def enqueue_bulk(self, jobs: int, seconds_max: float) -> Enqueued:
        return await in_chunks(self._submit_chunk, jobs, BULK_CHUNK, seconds_max)

    async def _submit_chunk(self, numbers: range) -> None:
        await self._opened().submit_many(
            [Submission(ENDPOINT, payload_object(number)) for number in numbers]
        )

    async def wait(self, submitted: object) -> None:
        assert isinstance(submitted, Ticket)
        view = await self._opened().wait(submitted.id, timeout=WAIT_SECONDS_MAX)
        if view.result is None:
            raise RuntimeError(f"job {submitted.id} has no result after {WAIT_SECONDS_MAX} s")

    async def unfinished(self) -> int:
        return await self._count("state NOT IN ('completed', 'failed', 'cancelled')")

    async def kept(self) -> Kept:
        return Kept(
            records=await self._count("state = 'completed'"),
            results=await self._count("state = 'completed' AND result IS NOT NULL"),
        )

    async def _count(self, condition: str) -> int:
        return int(await self._connection.fetchval(f"SELECT count(*) FROM jobs WHERE {condition}"))

    async def write_history(self, finished_rows: int) -> None:
        await write_history(self._connection, ENDPOINT, finished_rows)

    async def claim_cost(self) -> float:
        return await claim_cost(self._address, self._opened(), ENDPOINT)

    async def close(self) -> None:
        if self._engine is not None:
            await self._engine.close()
            self._engine = None
        await self._connection.close()

    def _opened(self) -> Engine:
        assert self._engine is not None
        return self._engine
