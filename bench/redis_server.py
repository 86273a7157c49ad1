"""The one Redis of a run: on a unix socket, with its append-only file on."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import redis.asyncio

from bench.job_cost import ServerReading
from bench.process_tree import Tree
from bench.processes import Child, Processes

EXECUTABLE = "redis-server"
READY_SECONDS_MAX = 10.0
READY_POLL_SECONDS = 0.02
SETTINGS = {"appendonly": "yes", "appendfsync": "everysec", "save": ""}


def is_installed() -> bool:
    return shutil.which(EXECUTABLE) is not None


class RedisServer:
    """Started for the Redis peers; emptied before every measurement."""

    def __init__(self, folder: Path, processes: Processes) -> None:
        self._folder = folder
        self._socket = folder / "redis.sock"
        self._processes = processes
        self._child: Child | None = None

    @property
    def address(self) -> str:
        return f"unix://{self._socket}"

    async def start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        settings = [part for name, value in SETTINGS.items() for part in (f"--{name}", value)]
        self._child = await self._processes.start(
            "redis-server",
            [
                *(EXECUTABLE, "--port", "0", "--unixsocket", str(self._socket)),
                *("--dir", str(self._folder), "--daemonize", "no"),
                *settings,
            ],
            {},
        )
        await self._wait_until_ready(self._child)

    async def _wait_until_ready(self, child: Child) -> None:
        async with asyncio.timeout(READY_SECONDS_MAX):
            while not self._socket.exists():
                child.raise_if_ended()
                await asyncio.sleep(READY_POLL_SECONDS)

    async def version(self) -> str:
        async with redis.asyncio.Redis.from_url(self.address) as connection:
            information = await connection.info("server")
        return str(information["redis_version"])

    async def empty(self) -> "EmptyRedis":
        async with redis.asyncio.Redis.from_url(self.address) as connection:
            await connection.flushall()
        assert self._child is not None
        return EmptyRedis(self.address, RedisMeter(self._child))


class EmptyRedis:
    """Redis for one measurement; the counterpart of `postgres.Database`."""

    def __init__(self, address: str, meter: "RedisMeter") -> None:
        self.address = address
        self.worker_address = address
        self._meter = meter

    async def settle(self) -> None:
        """Redis has no planner to inform."""

    async def remove(self) -> None:
        """The next measurement empties it anyway."""

    @asynccontextmanager
    async def meter(self) -> AsyncIterator["RedisMeter"]:
        yield self._meter


class RedisMeter:
    """Reads the server, which is one process: what it does for the bench is not told apart."""

    def __init__(self, server: Child) -> None:
        self._server = server

    async def read(self) -> ServerReading:
        pid = self._server.process.pid
        return ServerReading(Tree.read([pid]), serving=frozenset([pid]))
