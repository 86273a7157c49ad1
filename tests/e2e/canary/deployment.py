"""A server and a worker as processes on one database, told where to die; and what they leave."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

import asyncpg
import httpx2
import psutil

from coatcheck.blobs import BlobContainer
from coatcheck.domain.api_keys import mint
from coatcheck.domain.identity import ALL_SCOPES
from coatcheck.domain.tenants import OrgLimits
from coatcheck.store import tenants
from coatcheck.store.election import Election
from coatcheck.store.line import Line
from coatcheck.upkeep.forgetter import Forgetter
from coatcheck.upkeep.sweeper import Sweeper
from tests.e2e.conftest import free_port
from tests.e2e.programs import environment
from tests.waiting import LIMIT_SECONDS, eventually, eventually_async

PEPPER = "a pepper that is only ever used in tests"
KILLED = 137


class Deployment:
    """A context manager. What its processes write is in ``folder``: blobs, temp, logs."""

    def __init__(self, dsn: str, folder: Path, **variables: str) -> None:
        self._dsn = dsn
        self.folder = folder
        self._environment = environment(dsn, folder) | {
            "COATCHECK_KEY_PEPPER": PEPPER,
            "COATCHECK_DRAIN_SECONDS": "5",
            "COATCHECK_LOG_LEVEL": "debug",
            **variables,
        }
        self._processes: list[subprocess.Popen[bytes]] = []
        self._dead: list[int] = []
        self.port = free_port()

    async def __aenter__(self) -> Self:
        (self.folder / "logs").mkdir()
        self._line = Line(self._dsn, name="tests")
        self.sql: asyncpg.Connection = await asyncpg.connect(self._dsn)
        await tenants.create_org(self._line, "default", "default", OrgLimits())
        key = mint()
        await tenants.create_key(
            self._line,
            "default",
            key.key_id,
            user="dev",
            name="test",
            digest=key.digest(PEPPER.encode()),
            scopes=ALL_SCOPES,
            rate=None,
            seconds_to_live=None,
        )
        self.http = httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{self.port}",
            headers={"Authorization": f"Bearer {key.text}"},
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
            if process.poll() is None:
                process.kill()
            process.wait()
        await self.http.aclose()
        await self.sql.close()
        await self._line.close()

    # Processes

    async def serve(self, crash_at: str = "") -> subprocess.Popen[bytes]:
        process = self._start(crash_at, "serve", "--port", str(self.port))

        async def answering() -> bool:
            with suppress(httpx2.HTTPError):
                return bool((await self.http.get("/healthz")).is_success)
            return process.poll() is not None

        await eventually_async(answering, "the server answers")
        return process

    def work(self, crash_at: str = "", **variables: str) -> subprocess.Popen[bytes]:
        return self._start(crash_at, "worker", "coatcheck.cli.demo:demo", **variables)

    def _start(self, crash_at: str, *arguments: str, **variables: str) -> subprocess.Popen[bytes]:
        armed = {"COATCHECK_CRASH_AT": crash_at} if crash_at else {}
        number = len(self._processes)
        with (self.folder / "logs" / f"{number}-{arguments[0]}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "coatcheck.cli", *arguments],
                env=self._environment | armed | variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._processes.append(process)
        return process

    async def died(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until it has died where it was told to."""
        status = await asyncio.to_thread(process.wait, LIMIT_SECONDS)
        assert status in (KILLED, -9), self.logs()

    @asynccontextmanager
    async def no_forgetter(self) -> AsyncIterator[None]:
        """Nobody's upkeep is elected to delete inputs meanwhile: it is left to the worker."""
        line = Line(self._dsn, name="forgetter's election")
        try:
            assert await Election(line, Forgetter.name).won()
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

    def kill_while_parsing(self, process: subprocess.Popen[bytes]) -> None:
        """Kill the worker once a process of its analysis has processes of its own: the parsers."""

        def parsers() -> list[psutil.Process]:
            with suppress(psutil.NoSuchProcess):
                for analysis in psutil.Process(process.pid).children():
                    return analysis.children()
            return []

        left = eventually(parsers, "parsers run")
        process.kill()
        process.wait()
        eventually(
            lambda: not any(each.is_running() and each.status() != "zombie" for each in left),
            "the parsers die with the worker",
        )

    # What is left

    async def sweep(self) -> None:
        """What the sweeper does to orphans once they are old enough, done now."""
        blobs = BlobContainer.open((self.folder / "blobs").as_uri())
        await Sweeper(self._line, blobs, grace=timedelta(0)).tick()

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
