"""A fresh store for each measurement, in the contender's own database server."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from bench.client_process import ClientProcess
from bench.contenders.contract import Contender, StoreKind
from bench.job_cost import ServerMeter
from bench.postgres import Postgres
from bench.redis_server import RedisServer


class Store(Protocol):
    """An installed, empty store of one contender."""

    address: str

    @property
    def worker_address(self) -> str:
        """Where workers connect if their server is measured."""

    async def settle(self) -> None: ...

    def meter(self) -> AbstractAsyncContextManager[ServerMeter]: ...

    async def remove(self) -> None: ...


class Stores:
    """Hands out stores. `redis` is None when Redis is not installed or no contender needs it."""

    def __init__(self, postgres: Postgres, redis: RedisServer | None) -> None:
        self.postgres = postgres
        self._redis = redis
        self._histories: set[str] = set()

    async def install(self, client: ClientProcess) -> None:
        """Has the contender make its tables once; every later store is a copy of them."""
        if client.contender.store is StoreKind.POSTGRES:
            await client.open(await self.postgres.create_template(client.contender.name))
            await client.install()
            await client.close()

    @asynccontextmanager
    async def fresh(self, contender: Contender) -> AsyncIterator[Store]:
        store = await self._make(contender)
        try:
            yield store
        finally:
            await store.remove()

    @asynccontextmanager
    async def with_history(self, client: ClientProcess, finished_rows: int) -> AsyncIterator[Store]:
        """A store full of finished jobs, written once per run and then copied."""
        history = f"{client.contender.name}_history"
        if history not in self._histories:
            await client.open(
                await self.postgres.create_template(history, source=client.contender.name)
            )
            await client.write_history(finished_rows)
            await client.close()
            self._histories.add(history)
        store = await self.postgres.create_database(history)
        try:
            yield store
        finally:
            await store.remove()

    async def _make(self, contender: Contender) -> Store:
        if contender.store is StoreKind.POSTGRES:
            return await self.postgres.create_database(contender.name)
        assert self._redis is not None
        return await self._redis.empty()
