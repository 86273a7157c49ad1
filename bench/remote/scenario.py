"""One round of the remote scenario, with the real processes.

Jobs of a registered service are submitted over HTTP, all at once. A worker with few slots spawns
them on a remote, which finishes each after a while, and manages them until they are completed.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from bench.http.connection import Connection
from bench.http.paced import ACCEPTED, OK, NotServedError
from bench.http.servers import (
    ORG,
    ControlPlane,
    admin_key,
    answering,
    control_plane,
    free_port,
    worker,
)
from bench.measure import percentile
from bench.postgres import Database, Postgres
from bench.processes import Child, Processes
from bench.remote.amounts import SLOTS, Amounts
from bench.remote.figures import RemoteFigure

_IDLE_SERVICE = "bench.batches.idle_service:idle"
_SUBMITTERS = 16
_DONE_SECONDS_MAX = 120.0
_LOOK_SECONDS = 0.1
Add = Callable[[RemoteFigure, float], None]


@dataclass(frozen=True)
class Done:
    """One job in the records of the remote and the database. Times are of one clock."""

    taken_at: float
    done_at: float
    completed_at: float
    polls: int

    @property
    def late_ms(self) -> float:
        return (self.completed_at - self.done_at) * 1_000

    @property
    def share(self) -> float:
        return (self.completed_at - self.done_at) / (self.done_at - self.taken_at) * 100


class RemoteRound:
    """Measures each figure and passes it to ``add``."""

    def __init__(
        self,
        postgres: Postgres,
        processes: Processes,
        folder: Path,
        amounts: Amounts,
        add: Add,
    ) -> None:
        self._postgres = postgres
        self._processes = processes
        self._folder = folder
        self._amounts = amounts
        self._add = add

    async def run(self) -> None:
        database = await self._postgres.create_database("coatcheck")
        settings = {
            "COATCHECK_BLOB_URL": (self._folder / "remote-blobs").as_uri(),
            "COATCHECK_EGRESS_ALLOW": "127.0.0.1",
            "COATCHECK_LANE_CONCURRENCY": f"urgent={SLOTS},standard={SLOTS},bulk={SLOTS}",
        }
        try:
            async with (
                self._place() as port,
                control_plane(database.address, self._processes, settings) as plane,
                worker(plane, self._processes, {}, service=_IDLE_SERVICE) as child,
            ):
                await self._register(plane, port)
                await self._measure(plane, child, port, database)
        finally:
            await database.remove()

    async def _measure(
        self, plane: ControlPlane, child: Child, port: int, database: Database
    ) -> None:
        await self._handed_in(plane, 1)
        await _completed(database, 1, child)
        cpu_before = child.cpu_seconds()
        begun_at = time.time()
        await self._handed_in(plane, self._amounts.jobs)
        await _completed(database, 1 + self._amounts.jobs, child)
        took = time.time() - begun_at
        cpu = child.cpu_seconds() - cpu_before
        done = await _done(database, port, begun_at)
        if len(done) != self._amounts.jobs:
            raise NotServedError(f"the remote had {len(done)} of {self._amounts.jobs} jobs")
        self._add_all(done, begun_at)
        self._add(RemoteFigure.WORKER_CPU, cpu / took * 100)
        self._add(RemoteFigure.WORKER_MS, cpu / len(done) * 1_000)

    def _add_all(self, done: list[Done], begun_at: float) -> None:
        first, last = min(each.taken_at for each in done), max(each.completed_at for each in done)
        polls = sum(each.polls for each in done)
        late = [each.late_ms for each in done]
        share = [each.share for each in done]
        self._add(RemoteFigure.SPAWNED, max(each.taken_at for each in done) - begun_at)
        self._add(RemoteFigure.IN_FLIGHT, _most_at_a_time(done))
        self._add(RemoteFigure.POLLS_RATE, polls / (last - first))
        self._add(RemoteFigure.POLLS_PER_JOB, polls / len(done))
        self._add(RemoteFigure.LATE_P50, percentile(late, 50))
        self._add(RemoteFigure.LATE_P95, percentile(late, 95))
        self._add(RemoteFigure.LATE_MAX, max(late))
        self._add(RemoteFigure.SHARE_P50, percentile(share, 50))
        self._add(RemoteFigure.SHARE_P95, percentile(share, 95))
        self._add(RemoteFigure.SHARE_MAX, max(share))

    async def _register(self, plane: ControlPlane, port: int) -> None:
        target = {"type": "remote", "adapter": "http", "url": f"http://127.0.0.1:{port}"}
        endpoint = {"method": "POST", "path": "/run", "target": target, "retries": 0}
        document = {"versions": {"1": {"endpoints": [endpoint]}}}
        path = f"/api/v1/orgs/{ORG}/workspaces/default/hosted-services/afar"
        key = await admin_key(plane, self._processes)
        connection = await Connection.open(plane.port)
        answer = await connection.request("PUT", path, _headers(key), json.dumps(document).encode())
        await connection.close()
        if answer.status != OK:
            raise NotServedError(f"PUT {path} was answered {answer.status}: {answer.body!r}")

    async def _handed_in(self, plane: ControlPlane, jobs: int) -> None:
        """Submit this many jobs, a few at a time."""
        numbers = iter(range(jobs))

        async def submit() -> None:
            connection = await Connection.open(plane.port)
            for number in numbers:
                body = json.dumps({"number": number}).encode()
                path = f"/api/v1/orgs/{ORG}/services/afar/async/run"
                answer = await connection.request("POST", path, _headers(plane.key), body)
                if answer.status != ACCEPTED:
                    raise NotServedError(f"a submit was answered {answer.status}: {answer.body!r}")
            await connection.close()

        async with asyncio.TaskGroup() as group:
            for _ in range(min(jobs, _SUBMITTERS)):
                group.create_task(submit())

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[int]:
        """The remote in its own process; returns its port."""
        port = free_port()
        child = await self._processes.start(
            "remote", [sys.executable, "-m", "bench.remote.place", str(port)], {}
        )
        try:
            await answering(port, child)
            yield port
        finally:
            await self._processes.stop(child)


def _headers(key: str) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}


async def _completed(database: Database, jobs: int, child: Child) -> None:
    """Wait until this many are completed."""
    connection = await asyncpg.connect(database.address)
    deadline = time.monotonic() + _DONE_SECONDS_MAX
    try:
        counted = "SELECT count(*) FROM jobs WHERE state = 'completed'"
        while (found := await connection.fetchval(counted)) < jobs:
            child.raise_if_ended()
            if time.monotonic() > deadline:
                raise NotServedError(f"{found} of {jobs} completed in {_DONE_SECONDS_MAX:g} s")
            await asyncio.sleep(_LOOK_SECONDS)
    finally:
        await connection.close()


async def _done(database: Database, port: int, since: float) -> list[Done]:
    """The records of the remote and the database for the jobs spawned since then."""
    place = await Connection.open(port)
    record = json.loads((await place.request("GET", "/record", {})).body)
    await place.close()
    connection = await asyncpg.connect(database.address)
    try:
        rows = await connection.fetch(
            "SELECT execution_id, extract(epoch FROM finished_at)::float8 AS completed_at FROM jobs"
        )
    finally:
        await connection.close()
    completed = {row["execution_id"]: row["completed_at"] for row in rows}
    return [
        Done(work["taken_at"], work["done_at"], completed[name], work["polls"])
        for name, work in record.items()
        if work["taken_at"] >= since
    ]


def _most_at_a_time(done: list[Done]) -> int:
    moves = sorted([(each.taken_at, 1) for each in done] + [(each.done_at, -1) for each in done])
    now = most = 0
    for _, move in moves:
        now += move
        most = max(most, now)
    return most
