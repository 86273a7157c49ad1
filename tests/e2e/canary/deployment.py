"""A server and a worker as processes on one database, told where to die; and what they leave.

A process takes a while to start: tests that leave no trace share a `Site` with those beside them.
"""

from __future__ import annotations

import asyncio
import itertools
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
_numbers = itertools.count(1)


class Site:
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
        self._processes: list[subprocess.Popen[bytes]] = []
        (folder / "logs").mkdir()

    async def furnish(self) -> None:
        """Make the organisation and the key."""
        line = Line(self.dsn, name="tests")
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

    def serve(self, **variables: str) -> subprocess.Popen[bytes]:
        return self._start("serve", "--port", str(self.port), **variables)

    def work(self, **variables: str) -> subprocess.Popen[bytes]:
        return self._start("worker", "coatcheck.cli.demo:demo", **variables)

    def _start(self, *arguments: str, **variables: str) -> subprocess.Popen[bytes]:
        name = f"{next(_numbers)}-{arguments[0]}.log"
        with (self.folder / "logs" / name).open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "coatcheck.cli", *arguments],
                env=self._environment | variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._processes.append(process)
        return process

    def close(self) -> None:
        """Kill whatever of it still runs."""
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.wait()


class Deployment:
    """A test's view of a site, and its processes there. A context manager, that ends them."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._processes: list[subprocess.Popen[bytes]] = []
        self._dead: list[int] = []
        self.folder = site.folder

    async def __aenter__(self) -> Self:
        self._line = Line(self._site.dsn, name="tests")
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
            if process.poll() is None:
                process.kill()
            process.wait()
        await self.http.aclose()
        await self.sql.close()
        await self._line.close()

    # Processes

    async def serve(self, crash_at: str = "") -> subprocess.Popen[bytes]:
        process = self._site.serve(**_armed(crash_at))
        self._processes.append(process)
        await self.answering()
        return process

    async def answering(self) -> None:
        """Wait until the server answers."""

        async def answers() -> bool:
            with suppress(httpx2.HTTPError):
                return bool((await self.http.get("/healthz")).is_success)
            return False

        await eventually_async(answers, "the server answers")

    def work(self, crash_at: str = "", **variables: str) -> subprocess.Popen[bytes]:
        process = self._site.work(**_armed(crash_at), **variables)
        self._processes.append(process)
        return process

    async def died(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until it has died where it was told to."""
        status = await asyncio.to_thread(process.wait, LIMIT_SECONDS)
        assert status in (KILLED, -9), self.logs()

    @asynccontextmanager
    async def no_forgetter(self) -> AsyncIterator[None]:
        """Nobody's upkeep is elected to delete inputs meanwhile: it is left to the worker."""
        line = Line(self._site.dsn, name="forgetter's election")
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


def _armed(crash_at: str) -> dict[str, str]:
    return {"COATCHECK_CRASH_AT": crash_at} if crash_at else {}


def _is_in(canary: bytes, row: str) -> bool:
    return canary.decode() in row or canary.hex() in row
