"""A whole Coatcheck in the test's own process: an engine, upkeep, and workers started on demand.

What a test declares here is what a user would: services and settings. Everything runs against a
real database; nothing is replaced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import asyncpg

from coatcheck import Engine, JobView, Service, Settings, State, Ticket
from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.lanes import DEFAULT_POLICIES, Lane
from coatcheck.maintenance import MaintenanceRunner
from coatcheck.worker.worker import Worker
from tests.all_products import maintenance
from tests.waiting import LIMIT_SECONDS, eventually_async


def lane_seconds(seconds: float) -> dict[Lane, float]:
    """The same ack timeout for every lane."""
    return dict.fromkeys(Lane, seconds)


def lane_slots(**slots: int) -> dict[Lane, int]:
    """So many slots for the lanes named, the usual number for the others."""
    usual = {lane: policy.concurrency for lane, policy in DEFAULT_POLICIES.items()}
    return usual | {Lane(name): number for name, number in slots.items()}


async def until_true(condition: Callable[[], bool], what: str) -> None:
    """Wait for something of this process to come true."""

    async def look() -> bool:
        return condition()

    await eventually_async(look, what)


class Workshop:
    """An engine and upkeep on ``dsn``, and the workers that a test starts. A context manager."""

    def __init__(self, dsn: str, folder: Path) -> None:
        self.dsn = dsn
        self.folder = folder
        self._workers: list[tuple[Worker, asyncio.Task[None]]] = []

    async def __aenter__(self) -> Self:
        settings = self.settings()
        self.sql = await asyncpg.connect(self.dsn)
        self.engine = await Engine.connect(settings)
        self._upkeep: MaintenanceRunner | None = None
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for worker, _ in self._workers:
            worker.stop()
        ended = await asyncio.gather(*(task for _, task in self._workers), return_exceptions=True)
        if self._upkeep is not None:
            await self._upkeep.stop()
        await self.engine.close()
        await self.sql.close()
        if error is None:
            for problem in ended:
                if isinstance(problem, Exception):
                    raise problem

    def settings(self, **overrides: Any) -> Settings:
        """Settings on the test's database and folder; no grace at the end unless a test asks."""
        return Settings(
            **{
                "database_url": self.dsn,
                "blob_url": (self.folder / "blobs").as_uri(),
                "temp_dir": self.folder / "temp",
                "drain_seconds": 0.0,
                **overrides,
            }
        )

    async def reconnect(self) -> None:
        """Make the test's own connection anew, after the server was away."""
        self.sql.terminate()
        self.sql = await asyncpg.connect(self.dsn)

    async def seen_waiting(self, application: str, kind: str = "Lock") -> int:
        """The backend of this application, once it is seen to wait for such a thing."""

        async def look() -> int | None:
            # Inside a transaction, what others do is otherwise looked at only once.
            await self.sql.execute("SELECT pg_stat_clear_snapshot()")
            pid: int | None = await self.sql.fetchval(
                """
                SELECT pid FROM pg_stat_activity
                WHERE datname = current_database() AND application_name = $1
                  AND state = 'active' AND $2 IN (wait_event_type, wait_event)
                """,
                application,
                kind,
            )
            return pid

        pid: int = await eventually_async(look, f"{application} waits for {kind}")
        return pid

    # Who works

    async def start_worker(
        self,
        *services: Service,
        name: str = "",
        on_ended: Mapping[str, Callable[[ClaimedJob], None]] | None = None,
        **overrides: Any,
    ) -> Worker:
        """A worker that claims; it is drained when the test ends."""
        worker = Worker(self.settings(**overrides), services, name=name, on_ended=on_ended or {})
        return await self.run_worker(worker)

    async def run_worker(self, worker: Worker) -> Worker:
        """The same of a worker that the test made."""
        task = asyncio.create_task(worker.run())
        self._workers.append((worker, task))
        ready = asyncio.create_task(worker.ready.wait())
        await asyncio.wait({ready, task}, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if task.done():
            task.result()
        return worker

    async def drain(self, worker: Worker) -> None:
        """Tell a worker to stop, and wait until it has."""
        worker.stop()
        await self.ended(worker)

    async def ended(self, worker: Worker) -> None:
        """Wait for the end of a worker; raises what ended it."""
        (task,) = [task for known, task in self._workers if known is worker]
        self._workers.remove((worker, task))
        async with asyncio.timeout(LIMIT_SECONDS):
            await task

    def start_upkeep(self) -> None:
        """Begin to stage, rescue, expire, prune and sweep."""
        self._upkeep = maintenance(self.settings())
        self._upkeep.start()

    # What becomes of jobs

    async def state(self, ticket: Ticket) -> State:
        return (await self.engine.get(ticket.id)).state

    async def until(
        self, ticket: Ticket, condition: Callable[[JobView], object], what: str
    ) -> JobView:
        """The job, as soon as ``condition`` is true of it."""

        async def look() -> JobView | None:
            view = await self.engine.get(ticket.id)
            return view if condition(view) else None

        view: JobView = await eventually_async(look, what)
        return view

    async def until_state(self, ticket: Ticket, state: State) -> JobView:
        return await self.until(ticket, lambda view: view.state is state, f"the job is {state}")

    async def end_of(self, ticket: Ticket, *, org: str = "default") -> JobView:
        """The job once it has ended."""
        view = await self.engine.wait(ticket.id, org=org, timeout=LIMIT_SECONDS)
        assert view.terminal, f"still {view.state} after {LIMIT_SECONDS:g} s"
        return view

    async def end_of_all(self, tickets: list[Ticket], *, org: str = "default") -> list[JobView]:
        return list(await asyncio.gather(*(self.end_of(ticket, org=org) for ticket in tickets)))

    async def make_due(self, ticket: Ticket) -> None:
        """Move the clock, as it were: a job that waits for its next try is due now."""
        await self.sql.execute(
            "UPDATE jobs SET run_at = now() WHERE id = $1 AND state IN ('staged', 'retrying')",
            ticket.uuid,
        )

    async def take_away(self, ticket: Ticket) -> None:
        """Take a job from its holder, as a rescuer would, and give it to nobody."""
        await self.sql.execute(
            """
            UPDATE jobs
            SET state = 'retrying', lease = NULL, run_deadline = NULL, run_at = 'infinity'
            WHERE id = $1 AND lease IS NOT NULL
            """,
            ticket.uuid,
        )
