"""A server and a worker as processes on one database, told where to be struck; what they leave.

A process takes a while to start: tests that leave no trace share `CanaryProcesses` with others.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import asyncpg
import httpx2
import psutil

from coatcheck.blobs import BlobContainer
from coatcheck.core.queries import tenants
from coatcheck.db.connection import Connection
from coatcheck.db.election import Election
from coatcheck.domain.tenants import ALL_SCOPES, OrgLimits, mint
from coatcheck.maintenance.retention import InputExpirer, OrphanBlobSweeper
from coatcheck.products.batches.maintenance import BatchSweeper
from tests import crash_points
from tests.child_process import ChildProcess
from tests.crash_points import VICTIM, Victim
from tests.e2e.programs import environment
from tests.ports import free_port
from tests.waiting import LIMIT_SECONDS, eventually, eventually_async

PEPPER = "a pepper that is only ever used in tests"
_numbers = itertools.count(1)


class CanaryProcesses:
    """A database with a key, and the folder and the port of what runs on it."""

    def __init__(self, dsn: str, folder: Path, **variables: str) -> None:
        self.dsn = dsn
        self.folder = folder
        self.port = free_port()
        self.key = mint()
        self._environment = environment(dsn, folder) | {
            "COATCHECK_KEY_PEPPER": PEPPER,
            "COATCHECK_DRAIN_SECONDS": "5",
            "COATCHECK_LOG_LEVEL": "debug",
            **variables,
        }
        self._processes: list[ChildProcess] = []
        (folder / "logs").mkdir()

    async def furnish(self) -> None:
        """Make the organisation and the key."""
        line = Connection(self.dsn, name="tests")
        try:
            await tenants.create_org(line, "default", "default", OrgLimits())
            await tenants.create_key(
                line,
                "default",
                self.key.key_id,
                user="dev",
                name="test",
                digest=self.key.digest(PEPPER.encode()),
                scopes=ALL_SCOPES,
                rate=None,
                seconds_to_live=None,
            )
        finally:
            await line.close()

    def serve(self, port: int | None = None, crash_at: str = "") -> ChildProcess:
        return self._start("serve", "--port", str(port or self.port), crash_at=crash_at)

    def work(self, crash_at: str = "", **variables: str) -> ChildProcess:
        return self._start("worker", "coatcheck.cli.demo:demo", crash_at=crash_at, **variables)

    def _start(self, *arguments: str, crash_at: str, **variables: str) -> ChildProcess:
        armed = {"COATCHECK_CRASH_AT": VICTIM.crash_at(crash_at)} if crash_at else {}
        process = ChildProcess(
            self.folder / "logs" / f"process-{next(_numbers)}",
            arguments[0],
            ["coatcheck.cli", *arguments],
            self._environment | armed | variables,
            crash_at=crash_at,
        )
        self._processes.append(process)
        return process

    def close(self) -> None:
        """Kill whatever of it still runs."""
        for process in self._processes:
            process.end()


class CanaryDeployment:
    """A test's view of a site, and its processes there. A context manager, that ends them.

    Not a ``Deployment``: the processes of a shared site outlive the event loop of a test.
    """

    def __init__(self, site: CanaryProcesses) -> None:
        self._site = site
        self._processes: list[ChildProcess] = []
        self._struck: ChildProcess | None = None
        self._dead: list[int] = []
        self.folder = site.folder

    async def __aenter__(self) -> Self:
        self._db = Connection(self._site.dsn, name="tests")
        self.sql: asyncpg.Connection = await asyncpg.connect(self._site.dsn)
        self.http = httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{self._site.port}",
            headers={"Authorization": f"Bearer {self._site.key.text}"},
            trust_env=False,
            timeout=LIMIT_SECONDS,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._processes:
            process.end()
        await self.http.aclose()
        await self.sql.close()
        await self._db.close()

    # Processes

    async def serve(self, crash_at: str = "") -> ChildProcess:
        """A server, which is talked to from here on. One that stands still keeps its port."""
        port = free_port()
        process = self._site.serve(port, crash_at)
        self._processes.append(process)
        self.http.base_url = httpx2.URL(f"http://127.0.0.1:{port}")
        await self.answering()
        return process

    async def answering(self) -> None:
        """Wait until the server answers."""

        async def answers() -> bool:
            with suppress(httpx2.HTTPError):
                return bool((await self.http.get("/healthz")).is_success)
            return False

        await eventually_async(answers, "the server answers")

    def work(self, crash_at: str = "", **variables: str) -> ChildProcess:
        process = self._site.work(crash_at, **variables)
        self._processes.append(process)
        return process

    async def strike(self, process: ChildProcess) -> None:
        """Have the victim struck as the process comes to its crash point: see crash_points.py."""
        self._struck = await crash_points.strike(process, self.sql, self._reconnect)

    async def _reconnect(self) -> None:
        self.sql.terminate()
        self.sql = await asyncpg.connect(self._site.dsn)

    async def strike_during(self, server: ChildProcess, call: Coroutine[Any, Any, None]) -> None:
        """The same while a server is called. One that stands still is not waited for."""
        caller = asyncio.create_task(call)
        striking = asyncio.create_task(self.strike(server))
        try:
            await asyncio.wait({caller, striking}, return_when=asyncio.FIRST_COMPLETED)
            if not striking.done():
                caller.result()  # why nobody came to the point
            await striking
            if VICTIM is not Victim.PAUSE:
                await caller
        finally:
            caller.cancel()
            striking.cancel()
            await asyncio.gather(caller, striking, return_exceptions=True)

    async def struck_goes_on(self) -> None:
        """Let whoever was stopped, and not killed, do what it was about to do, and end."""
        if self._struck is not None:
            struck, self._struck = self._struck, None
            await crash_points.go_on(struck, self.sql)

    @asynccontextmanager
    async def no_forgetter(self) -> AsyncIterator[None]:
        """Nobody's upkeep is elected to delete inputs meanwhile: it is left to the worker."""
        line = Connection(self._site.dsn, name="forgetter's election")
        try:
            assert await Election(line, InputExpirer.name).won()
            yield
        finally:
            await line.close()

    async def bury(self) -> None:
        """Every worker that there is has died."""
        self._dead = [boot for (boot,) in await self.sql.fetch("SELECT boot FROM workers")]

    async def end_leases_of_the_dead(self) -> None:
        """To be repeated: a last heartbeat of theirs may still be on its way in the server."""
        await self.sql.execute(
            "UPDATE workers SET last_seen_at = now() - interval '1 hour' WHERE boot = ANY($1)",
            self._dead,
        )

    async def kill_while_parsing(self, process: ChildProcess) -> None:
        """Kill the worker once a process of its analysis has processes of its own: the parsers."""

        def parsers() -> list[psutil.Process]:
            with suppress(psutil.NoSuchProcess):
                for analysis in psutil.Process(process.pid).children():
                    return analysis.children()
            return []

        left = eventually(parsers, "parsers run")
        await process.kill()
        eventually(
            lambda: not any(each.is_running() and each.status() != "zombie" for each in left),
            "the parsers die with the worker",
        )

    # What is left

    async def sweep(self) -> None:
        """What the sweeper does to orphans once they are old enough, done now."""
        blobs = BlobContainer.open((self.folder / "blobs").as_uri())
        for sweeper in (OrphanBlobSweeper, BatchSweeper):
            await sweeper(self._db, blobs, grace=timedelta(0)).tick()

    def files(self, place: str) -> list[Path]:
        return [path for path in (self.folder / place).rglob("*") if path.is_file()]

    def logs(self) -> str:
        return "\n".join(path.read_text() for path in self.files("logs"))

    async def places_with(self, canary: bytes) -> list[str]:
        """Where in all that is kept these bytes are: on disk, in blobs, in logs, in the tables."""
        found = [
            str(path.relative_to(self.folder))
            for place in ("blobs", "temp", "logs")
            for path in self.files(place)
            if canary in path.read_bytes()
        ]
        return found + await self._tables_with(canary)

    async def _tables_with(self, canary: bytes) -> list[str]:
        tables = await self.sql.fetch(
            "SELECT c.oid::regclass::text AS name FROM pg_class AS c"
            " WHERE c.relkind IN ('r', 'p', 'm') AND c.relnamespace = 'public'::regnamespace"
        )
        assert len(tables) > 10
        return [
            name
            for (name,) in tables
            for row in await self.sql.fetch(f"SELECT t::text AS row FROM {name} AS t")
            if _is_in(canary, row["row"])
        ]


def _is_in(canary: bytes, row: str) -> bool:
    return canary.decode() in row or canary.hex() in row
