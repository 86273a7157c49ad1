"""One run of the dashboard scenario, with the real processes.

Two ``coatcheck serve``, one on a database with a short history and one with a long, are asked for
the same pages, alternately, by a visitor who is signed in.
"""

import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import asyncpg
import httpx2

from bench.dashboard.amounts import Amounts
from bench.dashboard.figures import PAGES, History, TimedPage, figure
from bench.dashboard.history import ORG, write_history
from bench.http.paced import NotServedError
from bench.http.servers import admin_key, control_plane
from bench.measure import percentile
from bench.postgres import Postgres
from bench.processes import Processes
from coatcheck.domain.ids import to_text

PERCENTS = (50, 95)
_TOKEN = re.compile(r'name="csrf" value="([^"]+)"')
_WARM_UPS = 5
_MIDDLE = """
SELECT j.id FROM jobs AS j
WHERE j.org_id = $1 AND j.id < (
    lpad(to_hex((date_part('epoch', now() - interval '10 days') * 1000)::bigint), 12, '0')
    || repeat('0', 20))::uuid
ORDER BY j.id DESC LIMIT 1
"""
Add = Callable[[str, float], None]


@dataclass(frozen=True)
class Visitor:
    """A signed-in visitor, and one of their jobs."""

    http: httpx2.AsyncClient
    job: str
    older: str
    """The URL of a late page of the list of jobs."""

    async def milliseconds(self, page: TimedPage) -> float:
        path = self.older if page.key == "jobs_older" else page.path.format(job=self.job)
        began = time.perf_counter()
        answer = await self.http.get(path)
        took = (time.perf_counter() - began) * 1000
        if answer.status_code != 200:
            raise NotServedError(f"{path} answered {answer.status_code}")
        return took


class DashboardRound:
    """Measures each page over each history and passes the figures to ``add``."""

    def __init__(
        self, postgres: Postgres, processes: Processes, amounts: Amounts, add: Add
    ) -> None:
        self._postgres = postgres
        self._processes = processes
        self._amounts = amounts
        self._add = add

    async def run(self) -> None:
        async with (
            self._visitor(self._amounts.few) as few,
            self._visitor(self._amounts.many) as many,
        ):
            visitors = {History.FEW: few, History.MANY: many}
            for page in PAGES:
                for visitor in visitors.values():
                    for _ in range(_WARM_UPS):
                        await visitor.milliseconds(page)
                took: dict[History, list[float]] = {history: [] for history in History}
                for _ in range(self._amounts.times):
                    for history, visitor in visitors.items():
                        took[history].append(await visitor.milliseconds(page))
                for history, values in took.items():
                    for percent in PERCENTS:
                        self._add(figure(page, history, percent), percentile(values, percent))

    @asynccontextmanager
    async def _visitor(self, jobs: int) -> AsyncIterator[Visitor]:
        database = await self._postgres.create_database("coatcheck")
        try:
            await write_history(database.address, jobs, self._amounts)
            async with control_plane(database.address, self._processes) as plane:
                key = await admin_key(plane, self._processes, "read", "submit")
                async with httpx2.AsyncClient(
                    base_url=plane.url, trust_env=False, timeout=60
                ) as client:
                    await _sign_in(client, key)
                    yield await _looking_at(client, database.address)
        finally:
            await database.remove()


async def _sign_in(client: httpx2.AsyncClient, key: str) -> None:
    shown = await client.get("/ui/sign-in")
    token = _TOKEN.search(shown.text)
    if token is None:
        raise NotServedError("the sign-in page has no form")
    answer = await client.post("/ui/sign-in", data={"csrf": token[1], "credential": key})
    if answer.status_code != 303:
        raise NotServedError(f"signing in was answered {answer.status_code}")


async def _looking_at(client: httpx2.AsyncClient, address: str) -> Visitor:
    """A visitor with a job, and a page, from the middle of the history."""
    connection = await asyncpg.connect(address)
    try:
        middle = to_text(await connection.fetchval(_MIDDLE, ORG))
    finally:
        await connection.close()
    return Visitor(client, middle, f"/ui/jobs?cursor={middle}")
