"""A deployment to measure: submits jobs, and reads their outcomes from the recorded history.

Times are the database's if it saw both ends, and otherwise those of the machine's monotonic clock,
which all processes share.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import asyncpg
import httpx2

from chaos.deployment import SERVICE, Deployment
from chaos.history import History, read
from chaos.member import ROOT
from chaos.world import World
from coatcheck.domain.ids import from_text
from coatcheck.domain.tenants import DEFAULT_ORG
from coatcheck.settings.settings import PREFIX
from coatcheck.tls import trusted_authorities
from tests.ports import free_port

LANES: Final = ("urgent", "standard", "bulk")
ORG: Final = "a"
UP_IS_READY: Final = "Coatcheck is ready."
LIMIT_SECONDS: Final = 120.0
"""Only a deployment that does not recover takes that long."""
LOOK_SECONDS: Final = 0.02


@dataclass(frozen=True)
class Fate:
    """The history of a job, from the database's triggers."""

    claims: int
    crashes: int
    interruptions: int
    state: str


class Caller:
    """Submits jobs of the chaos service, and reads the records of their executions."""

    def __init__(self, history: History, http: httpx2.AsyncClient, org: str) -> None:
        self._history = history
        self._http = http
        self._org = org

    async def submit(self, path: str, lane: str, **body: object) -> str:
        """Submit a job of the chaos service; returns its id."""
        answer = await self._http.post(
            f"/api/v1/orgs/{self._org}/services/chaos/async/{path}",
            json={"word": "recovery", "log": str(self._history.executions), **body},
            headers={"X-HSL-Lane": lane},
        )
        answer.raise_for_status()
        return str(answer.json()["job_id"])

    async def cancel(self, job: str) -> None:
        path = f"/api/v1/orgs/{self._org}/services/chaos/jobs/{job}/cancel"
        (await self._http.post(path)).raise_for_status()

    async def executed(self, job: str, times: int) -> float:
        """The time of a job's ``times``-th start, by the monotonic clock."""
        async with asyncio.timeout(LIMIT_SECONDS):
            while True:
                begun = [row["monotonic"] for row in self._executions() if row["job"] == job]
                if len(begun) >= times:
                    return float(begun[times - 1])
                await asyncio.sleep(LOOK_SECONDS)

    def executions(self, job: str) -> list[int]:
        """The processes that started it, in order."""
        return [row["pid"] for row in self._executions() if row["job"] == job]

    def _executions(self) -> list[dict[str, Any]]:
        path = self._history.executions
        return read(path) if path.exists() else []


class Laboratory(Caller):
    """A caller of a deployment with access to its database."""

    def __init__(self, deployment: Deployment, history: History, http: httpx2.AsyncClient) -> None:
        super().__init__(history, http, ORG)
        self.deployment = deployment

    async def hide_workers(self) -> None:
        """Remove the hosts of the workers, as if each were on another machine."""
        async with self.database() as sql:
            await sql.execute("UPDATE workers SET host = NULL")

    async def ended(self, jobs: Sequence[str]) -> None:
        """Wait until jobs have ended."""
        async with asyncio.timeout(LIMIT_SECONDS):
            for job in jobs:
                while (await self.fate(job)).state not in ("completed", "failed", "cancelled"):
                    await asyncio.sleep(10 * LOOK_SECONDS)

    async def fate(self, job: str) -> Fate:
        async with self.database() as sql:
            row = await sql.fetchrow(
                """
                SELECT count(*) FILTER (WHERE after = 'dispatching') AS claims,
                       sum(crashes) AS crashes, sum(interruptions) AS interruptions,
                       (array_agg(after::text ORDER BY number DESC))[1] AS state
                FROM job_history WHERE id = $1
                """,
                from_text(job),
            )
        assert row is not None
        return Fate(row["claims"], row["crashes"], row["interruptions"], row["state"])

    async def until_it_takes_connections(self) -> Any:
        """The database's time at its first answer."""
        async with asyncio.timeout(LIMIT_SECONDS):
            while True:
                try:
                    async with self.database() as sql:
                        return await sql.fetchval("SELECT clock_timestamp()")
                except (OSError, asyncpg.PostgresError):
                    await asyncio.sleep(LOOK_SECONDS)

    async def first_claim_after(self, then: Any) -> float:
        """Seconds from ``then`` to the first claim, by the database's clock."""
        async with asyncio.timeout(LIMIT_SECONDS), self.database() as sql:
            while True:
                seconds = await sql.fetchval(
                    "SELECT extract(epoch FROM min(at) - $1) FROM job_history"
                    " WHERE after = 'dispatching' AND at > $1",
                    then,
                )
                if seconds is not None:
                    return float(seconds)
                await asyncio.sleep(LOOK_SECONDS)

    async def queued(self) -> int:
        async with self.database() as sql:
            return int(await sql.fetchval("SELECT count(*) FROM jobs WHERE state = 'queued'"))

    @asynccontextmanager
    async def database(self) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
        connection = await asyncpg.connect(self.deployment.dsn, timeout=5)
        try:
            yield connection
        finally:
            connection.terminate()


@asynccontextmanager
async def laboratory(folder: Path, *, workers: int, **settings: str) -> AsyncIterator[Laboratory]:
    """A server and workers with these settings. A context manager."""
    folder.mkdir(parents=True)
    folder.chmod(0o711)  # PostgreSQL's account has to get through to its own folder
    history = History(folder / "history.ndjson")
    try:
        async with (
            World(history, 1) as world,
            Deployment(
                folder, seed=1, history=history, world=world, servers=1, workers=workers, **settings
            ) as deployment,
            httpx2.AsyncClient(
                base_url=deployment.urls[0],
                headers={"Authorization": f"Bearer {deployment.keys[ORG]}"},
                verify=trusted_authorities(trust_env=False),
                trust_env=False,
                timeout=30,
            ) as http,
        ):
            yield Laboratory(deployment, history, http)
    finally:
        history.close()


@asynccontextmanager
async def under_up(folder: Path, **settings: str) -> AsyncIterator[Caller]:
    """``coatcheck up`` with the chaos service, when it is ready. A context manager."""
    folder.mkdir(parents=True)
    folder.chmod(0o711)  # PostgreSQL's account has to get through to its own folder
    history, data, port = History(folder / "history.ndjson"), folder / "data", free_port()
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(PREFIX)}
    own = {PREFIX + name.upper(): value for name, value in settings.items()}
    with (folder / "up.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "coatcheck.cli", "up", SERVICE),
            *("--data", str(data), "--port", str(port)),
            cwd=ROOT,
            env=inherited | own,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            while UP_IS_READY not in (folder / "up.log").read_text():
                assert process.returncode is None, (folder / "up.log").read_text()
                await asyncio.sleep(LOOK_SECONDS)
        async with httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{port}",
            headers={"Authorization": f"Bearer {(data / 'dev-key').read_text().strip()}"},
            trust_env=False,
            timeout=30,
        ) as http:
            yield Caller(history, http, DEFAULT_ORG)
    finally:
        history.close()
        if process.returncode is None:
            process.terminate()
            await process.wait()


def now() -> float:
    return time.monotonic()
