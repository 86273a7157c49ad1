"""One round over HTTP: the comparison servers and Coatcheck right after each other."""

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path

import asyncpg

from bench.http import wrk
from bench.http.connection import Connection
from bench.http.figures import HttpFigure
from bench.http.paced import OK, NotServedError, submit_and_read
from bench.http.servers import (
    ControlPlane,
    comparison_server,
    control_plane,
    insert_environment,
    worker,
)
from bench.http.waits import wait_latencies
from bench.measure import percentile
from bench.payload import payload_bytes
from bench.postgres import Postgres
from bench.processes import Child, Processes
from bench.recorder import Progress
from bench.sizes import Sizes

PACE_PER_SECOND = 1_000
JSON = {"Content-Type": "application/json"}
PUBLISHED_SECONDS_MAX = 30.0
LOOK_SECONDS = 0.05
Add = Callable[[HttpFigure, float], None]


class HttpRound:
    """Measures each figure once and passes it to ``add``."""

    def __init__(
        self, postgres: Postgres, processes: Processes, folder: Path, sizes: Sizes, add: Add
    ) -> None:
        self._postgres = postgres
        self._processes = processes
        self._folder = folder
        self._sizes = sizes
        self._add = add

    async def run(self) -> None:
        await self._echo()
        await self._insert()
        await self._coatcheck()

    async def _echo(self) -> None:
        async with comparison_server("starlette_echo", self._processes) as url:
            load = wrk.Load(f"{url}/echo", "POST", JSON, payload_bytes(1).decode())
            self._add(HttpFigure.ECHO, (await self._under(load)).per_second)

    async def _insert(self) -> None:
        database = await self._postgres.create_database("coatcheck")
        try:
            environment = insert_environment(database.address)
            async with comparison_server("fastapi_insert", self._processes, environment) as url:
                load = wrk.Load(f"{url}/submit", "POST", JSON, payload_bytes(1).decode())
                self._add(HttpFigure.INSERT, (await self._under(load)).per_second)
        finally:
            await database.remove()

    async def _coatcheck(self) -> None:
        database = await self._postgres.create_database("coatcheck")
        progress = Progress(self._folder, 1, record_starts=True)
        try:
            async with control_plane(database.address, self._processes) as plane:
                async with worker(plane, self._processes, progress.environment(0)) as child:
                    poll_url = await first_job(plane, child)
                    await self._with_a_worker(plane, progress)
                await self._alone(plane, database.address, poll_url)
        finally:
            progress.close()
            await database.remove()

    async def _with_a_worker(self, plane: ControlPlane, progress: Progress) -> None:
        jobs = self._sizes.paced_jobs
        for figure, first, long_poll in (
            (HttpFigure.PREFER_WAIT_P50, 10_000_000, False),
            (HttpFigure.LONG_POLL_P50, 20_000_000, True),
        ):
            found = await wait_latencies(plane, progress, first, jobs, long_poll=long_poll)
            self._add(figure, percentile(found, 50))
        timed = await submit_and_read(plane, PACE_PER_SECOND, self._sizes.http_seconds)
        self._add(HttpFigure.PACED_SUBMIT_P50, percentile(timed.submits, 50))
        self._add(HttpFigure.PACED_SUBMIT_P99, percentile(timed.submits, 99))
        self._add(HttpFigure.PACED_STATUS_P50, percentile(timed.reads, 50))
        self._add(HttpFigure.PACED_STATUS_P99, percentile(timed.reads, 99))

    async def _alone(self, plane: ControlPlane, address: str, poll_url: str) -> None:
        """Without a worker, so that only submits and reads are measured."""
        bearer = {"Authorization": f"Bearer {plane.key}"}
        connection = await asyncpg.connect(address)
        try:
            before = await _jobs(connection)
            submit = wrk.Load(
                plane.url + plane.submit_path, "POST", JSON | bearer, payload_bytes(1).decode()
            )
            served = await self._under(submit)
            stored = await _jobs(connection) - before
        finally:
            await connection.close()
        # wrk leaves requests that it no longer counts, at most one per connection each time.
        if not served.requests <= stored <= served.requests + self._warm_up + 2 * wrk.CONNECTIONS:
            raise NotServedError(f"{served.requests} submits were acknowledged, {stored} stored")
        self._add(HttpFigure.SUBMIT, served.per_second)
        status = wrk.Load(plane.url + poll_url, "GET", bearer)
        self._add(HttpFigure.STATUS, (await self._under(status)).per_second)

    async def _under(self, load: wrk.Load) -> wrk.Served:
        warm_up = await wrk.run(load, self._sizes.http_warm_up_seconds, self._folder)
        self._warm_up = warm_up.requests
        return await wrk.run(load, self._sizes.http_seconds, self._folder)


async def _jobs(connection: asyncpg.Connection) -> int:
    return int(await connection.fetchval("SELECT count(*) FROM jobs"))


async def first_job(plane: ControlPlane, child: Child) -> str:
    """Run one job once the worker has published its service; returns the URL of its result."""
    headers = {"Authorization": f"Bearer {plane.key}", "Prefer": "wait=30"} | JSON
    connection = await Connection.open(plane.port)
    deadline = time.monotonic() + PUBLISHED_SECONDS_MAX
    while True:
        answer = await connection.request("POST", plane.submit_path, headers, payload_bytes(1))
        if answer.status == OK:
            break
        child.raise_if_ended()
        if time.monotonic() > deadline:
            raise NotServedError(f"answered {answer.status}: {answer.body[:200]!r}")
        await asyncio.sleep(LOOK_SECONDS)
    await connection.close()
    job = json.loads(answer.body)
    return f"/api/v1/orgs/{job['org_id']}/services/{job['service_id']}/jobs/{job['id']}"
