"""One round of the batches scenario, with the real processes.

A staged list is submitted, ingested by a worker that serves no tasks, drained by two that do, and
exported; each step beside its baseline in the same run. Then a scrape, in another database.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from uuid import UUID

import asyncpg

from bench.batches import single_jobs
from bench.batches.amounts import WORKERS, Amounts
from bench.batches.client import BatchClient, Json
from bench.batches.drains import Drained, time_drain, two_workers
from bench.batches.export_check import check_export
from bench.batches.figures import BatchFigure
from bench.batches.local_server import Receiver, serving
from bench.batches.memory import Memory
from bench.batches.raw_copy import copied_per_second
from bench.batches.scrape import scrape
from bench.batches.small_batches import SmallBatches
from bench.batches.staged_list import write_list
from bench.http.paced import NotServedError
from bench.http.scenario import first_job
from bench.http.servers import ControlPlane, control_plane, worker
from bench.postgres import Database, Postgres
from bench.processes import Child, Processes
from bench.recorder import Progress
from coatcheck.domain.ids import from_text

_IDLE_SERVICE = "bench.batches.idle_service:idle"
_LOOK_SECONDS = 0.25
_STEP_SECONDS_MAX = 600.0
_SMALL_UNTIL_SHARE = 0.85
_WAIT_SECONDS = 60
Add = Callable[[BatchFigure, float], None]


class BatchesRound:
    """Measures each figure and passes it to ``add``; peak memory goes to ``memory``."""

    def __init__(
        self,
        postgres: Postgres,
        processes: Processes,
        folder: Path,
        amounts: Amounts,
        add: Add,
        memory: Memory,
    ) -> None:
        self._postgres = postgres
        self._processes = processes
        self._folder = folder
        self._amounts = amounts
        self._add = add
        self._memory = memory

    async def run(self) -> None:
        await self._batch()
        await self._single_jobs()
        await self._scrape()

    # A batch, from its list to its export

    async def _batch(self) -> None:
        receiver = Receiver()
        async with (
            self._deployment() as (database, plane),
            serving(["127.0.0.1"], receiver.handle) as receiver_port,
        ):
            await self._publish(plane)
            client = await BatchClient.open(plane)
            order = {
                "service": "noop",
                "endpoint": "run",
                "webhook_url": f"http://127.0.0.1:{receiver_port}/",
            }
            uploads = await self._stage(client)
            await self._hand_in_others(client, order, uploads[1:])
            job = await self._take_in(client, plane, database, order, uploads[0])
            await self._copy_raw(database, job)
            await self._drain_and_export(client, plane, database, job, receiver)
            await client.close()
            self._memory.note("coatcheck serve", plane.child)

    async def _publish(self, plane: ControlPlane) -> None:
        """Start and stop a worker, which makes the service known."""
        progress = Progress(self._folder, 1, record_starts=False)
        async with worker(plane, self._processes, progress.environment(0)) as child:
            await first_job(plane, child)
        progress.close()

    async def _stage(self, client: BatchClient) -> list[str]:
        path = self._folder / "list.ndjson"
        await asyncio.to_thread(write_list, path, self._amounts.lines)
        uploads = [await client.stage(path) for _ in range(1 + self._amounts.other_lists)]
        path.unlink()
        return uploads

    async def _hand_in_others(self, client: BatchClient, order: Json, uploads: list[str]) -> None:
        """For the spread alone. They are not ingested, and deleted again."""
        for upload in uploads:
            job, milliseconds = await client.timed_hand_in(_with_list(order, upload))
            self._add(BatchFigure.ACCEPTED, milliseconds)
            await client.delete(job)

    async def _take_in(
        self, client: BatchClient, plane: ControlPlane, database: Database, order: Json, upload: str
    ) -> Json:
        async with worker(plane, self._processes, {}, service=_IDLE_SERVICE) as child:
            await _until_idle(database.address, child)
            job, milliseconds = await client.timed_hand_in(_with_list(order, upload))
            self._add(BatchFigure.ACCEPTED, milliseconds)
            job = await _until(client, job, lambda job: job["status"] != "ingesting")
            self._memory.note("worker that ingests the list", child)
        if job["counts"]["total"] != self._amounts.lines or job["ingest"]["bad_lines"]:
            raise NotServedError(f"a list of {self._amounts.lines} lines came to {job['ingest']}")
        seconds = await _fetch(
            database.address,
            "SELECT extract(epoch FROM latched_at - created_at)::float8 FROM runs WHERE id = $1",
            _run_of(job),
        )
        self._add(BatchFigure.INGEST, self._amounts.lines / seconds)
        return job

    async def _copy_raw(self, database: Database, job: Json) -> None:
        file = self._folder / "rows.copy"
        found = await copied_per_second(self._postgres, database.address, _run_of(job), file)
        self._add(BatchFigure.RAW_COPY, found)

    async def _drain_and_export(
        self,
        client: BatchClient,
        plane: ControlPlane,
        database: Database,
        job: Json,
        receiver: Receiver,
    ) -> None:
        await database.settle()
        small = SmallBatches(client, int(self._amounts.lines * _SMALL_UNTIL_SHARE))
        async with (
            asyncio.TaskGroup() as waiting,
            two_workers(plane, self._processes, self._folder) as (children, progress),
        ):
            seen = waiting.create_task(_completion_seen(plane, job))
            drained = await time_drain(
                database.address,
                children,
                progress,
                self._amounts.lines,
                f"run_id = '{_run_of(job)}'",
                small.hand_in,
            )
            self._add(BatchFigure.TASK_DRAIN, drained.per_second)
            for milliseconds in small.milliseconds:
                self._add(BatchFigure.SMALL_BATCH, milliseconds)
            for run in small.runs:
                self._add(BatchFigure.SMALL_TASKS, await _tasks_ended(database.address, run))
            self._add(
                BatchFigure.COMPLETION_SEEN,
                (await seen - drained.ended_at.timestamp()) * 1_000,
            )
            await self._check_counters(client, database, job)
            await self._export(client, job)
            await self._check_events(database, job, receiver)
            for number, child in enumerate(children, start=1):
                self._memory.note(f"worker {number} of {WORKERS}", child)

    async def _check_counters(self, client: BatchClient, database: Database, job: Json) -> None:
        counts = (await client.get(job))["counts"]
        recount = await _fetch(
            database.address,
            "SELECT count(*) FROM jobs WHERE run_id = $1 AND state = 'completed'",
            _run_of(job),
        )
        if not (counts["total"] == counts["succeeded"] == recount == self._amounts.lines):
            raise NotServedError(f"the counters say {counts}, a recount {recount} succeeded")

    async def _check_events(self, database: Database, job: Json, receiver: Receiver) -> None:
        """After the export, which takes long enough for a second event to arrive."""
        events = await _fetch(
            database.address,
            "SELECT count(*) FROM webhook_deliveries WHERE subject_kind = 'batch'"
            " AND subject_id = $1 AND event = 'batch.completed'",
            from_text(job["id"]),
        )
        self._add(BatchFigure.COMPLETION_EVENTS, events)
        if events != 1 or len(receiver.bodies) != 1:
            raise NotServedError(f"{events} events, of which {len(receiver.bodies)} were received")

    async def _export(self, client: BatchClient, job: Json) -> None:
        export = await _until(client, await client.export(job), lambda export: export["terminal"])
        if export["status"] != "completed":
            raise NotServedError(f"an export came to {export}")
        seconds = _moment(export["completed_at"]) - _moment(export["created_at"])
        self._add(BatchFigure.EXPORT, self._amounts.lines / seconds)
        self._add(BatchFigure.EXPORT_MEGABYTES, export["bytes"] / 1e6)
        path = self._folder / "export.zip"
        sha256 = await client.download(export["url"], path)
        if sha256 != export["sha256"] or path.stat().st_size != export["bytes"]:
            raise NotServedError("an export is not what its own row says")
        await asyncio.to_thread(check_export, path, self._amounts.lines)
        path.unlink()

    # Its baseline, and the scrape

    async def _single_jobs(self) -> None:
        async with self._deployment() as (database, plane):
            await single_jobs.load(database.address, self._amounts.lines)
            await database.settle()
            drained: Drained
            async with two_workers(plane, self._processes, self._folder) as (children, progress):
                drained = await time_drain(
                    database.address, children, progress, self._amounts.lines, "run_id IS NULL"
                )
            self._add(BatchFigure.SINGLE_DRAIN, drained.per_second)

    async def _scrape(self) -> None:
        async with (
            self._deployment() as (_, plane),
            two_workers(plane, self._processes, self._folder) as (children, _),
        ):
            await first_job(plane, children[0])
            client = await BatchClient.open(plane)
            scraped = await scrape(client, self._amounts.urls)
            await client.close()
            self._add(BatchFigure.SCRAPE_PAGES, scraped.pages)
            self._add(BatchFigure.SCRAPE_SECONDS, scraped.seconds)
            self._add(BatchFigure.SCRAPE_AT_ONCE, scraped.at_once)
            self._add(BatchFigure.SCRAPE_RUN_RATE, scraped.in_a_second)
            self._add(BatchFigure.SCRAPE_HOST_RATE, scraped.of_a_host_in_a_second)
            for number, child in enumerate(children, start=1):
                self._memory.note(f"worker {number} of {WORKERS}, scraping", child)

    @asynccontextmanager
    async def _deployment(self) -> AsyncIterator[tuple[Database, ControlPlane]]:
        """A fresh database and blob folder, and a server on them."""
        database = await self._postgres.create_database("coatcheck")
        environment = {
            "COATCHECK_BLOB_URL": (self._folder / f"blobs-{time.time_ns()}").as_uri(),
            "COATCHECK_TEMP_DIR": str(self._folder / "temp"),
            "COATCHECK_EGRESS_ALLOW": "127.0.0.0/8",
        }
        try:
            async with control_plane(database.address, self._processes, environment) as plane:
                yield database, plane
        finally:
            await database.remove()


def _with_list(order: Json, upload: str) -> Json:
    return order | {"source": {"upload_id": upload}}


def _run_of(job: Json) -> UUID:
    return from_text(job["runs"][-1]["id"])


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


async def _until(client: BatchClient, shown: Json, reached: Callable[[Json], bool]) -> Json:
    """The first answer that meets the condition."""
    deadline = time.monotonic() + _STEP_SECONDS_MAX
    while not reached(shown):
        if time.monotonic() > deadline:
            raise NotServedError(f"after {_STEP_SECONDS_MAX:.0f} s it still is {shown}")
        await asyncio.sleep(_LOOK_SECONDS)
        shown = await client.get(shown)
    return shown


async def _completion_seen(plane: ControlPlane, job: Json) -> float:
    """The time when a waiting client has the completed batch."""
    client = await BatchClient.open(plane)
    deadline = time.monotonic() + _STEP_SECONDS_MAX
    while not job["terminal"] and time.monotonic() < deadline:
        job = await client.held(job, _WAIT_SECONDS)
    seen = time.time()
    await client.close()
    if job["status"] != "completed":
        raise NotServedError(f"the batch came no further than {job['status']} {job['counts']}")
    return seen


async def _tasks_ended(address: str, run: str) -> float:
    """Milliseconds from a run's creation to the end of its last task."""
    return await _fetch(
        address,
        "SELECT extract(epoch FROM max(j.finished_at) - r.created_at)::float8 * 1000"
        " FROM runs AS r JOIN jobs AS j ON j.org_id = r.org_id AND j.run_id = r.id"
        " WHERE r.id = $1 AND j.state = 'completed' GROUP BY r.created_at",
        from_text(run),
    )


async def _until_idle(address: str, child: Child) -> None:
    """Wait until the worker has ended earlier jobs: the ingests of deleted batches."""
    deadline = time.monotonic() + _STEP_SECONDS_MAX
    while await _fetch(
        address,
        "SELECT count(*) FROM jobs WHERE state NOT IN ('completed', 'failed', 'cancelled')",
    ):
        child.raise_if_ended()
        if time.monotonic() > deadline:
            raise NotServedError("jobs of deleted batches have not ended")
        await asyncio.sleep(_LOOK_SECONDS)


async def _fetch(address: str, query: str, *arguments: object) -> float:
    connection = await asyncpg.connect(address)
    try:
        return float(await connection.fetchval(query, *arguments))
    finally:
        await connection.close()
