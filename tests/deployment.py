"""One deployment for a test: servers, workers, maintenance and tenants on a database of its own.

Every request goes over a real socket to a real server on a real database; nothing is replaced.
Servers and workers run in the test's process, where a test can ask them, or in processes of their
own (``start_process``), which a test can pause and kill.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import asyncpg
import httpx2

from coatcheck import Engine, JobView, Service, Settings, State, Ticket
from coatcheck.core.queries import tenants
from coatcheck.db.connection import Connection
from coatcheck.db.database import Database
from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.lanes import DEFAULT_POLICIES, Lane
from coatcheck.domain.tenants import ALL_SCOPES, OrgLimits, RateLimit, Scope, mint
from coatcheck.hosting import RemoteExecutor, product_routes
from coatcheck.http.app import Pages, create_app
from coatcheck.http.context import ServerContext, open_server_context
from coatcheck.http.server import HttpServer, listen
from coatcheck.maintenance import MaintenanceRunner
from coatcheck.product import Products
from coatcheck.products.batches.executor import BatchExecutor
from coatcheck.products.gateway.executor import UpstreamExecutor
from coatcheck.products.graphs.executor import GraphExecutor
from coatcheck.products.llm.executor import LlmExecutor
from coatcheck.products.speech.executor import speech_service
from coatcheck.settings.egress_allow import parse_allow
from coatcheck.settings.settings import PREFIX
from coatcheck.tls import trusted_authorities
from coatcheck.worker.worker import Worker
from tests import crash_points
from tests.child_process import ROOT, ChildProcess
from tests.crash_points import VICTIM
from tests.db.rows import recorded
from tests.sealed_secrets import SECRET_KEY
from tests.waiting import LIMIT_SECONDS, eventually_async

PEPPER = "a pepper that is only ever used in tests"
LOOPBACK = "127.0.0.1"
ANY_PORT = 0
_DRAIN_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Server:
    """One server on a socket, and a client of it."""

    context: ServerContext
    http: httpx2.AsyncClient
    server: HttpServer
    serving: asyncio.Task[None]

    async def stop(self) -> None:
        """Tell the server to stop, as SIGTERM does, and wait until it has."""
        self.server.stop()
        await self.serving


class Deployment:
    """A deployment on ``dsn``, with so many servers from the beginning. A context manager.

    With a server it has the organisation ``default`` and an admin's ``key`` there, which ``http``
    presents; ``engine`` is the server's. Without one, ``engine`` is a program's. Whatever a test
    starts ends with it.
    """

    server: Server
    context: ServerContext
    http: httpx2.AsyncClient
    key: str

    def __init__(
        self,
        dsn: str,
        folder: Path,
        *,
        servers: int = 1,
        pages: Pages | None = None,
        **settings: Any,
    ) -> None:
        self.dsn = dsn
        self.folder = folder
        self.products = Products.load(settings.get("products", ()))
        self.settings = Settings(
            **{
                "database_url": dsn,
                "blob_url": (folder / "blobs").as_uri(),
                "temp_dir": folder / "temp",
                "drain_seconds": 0.0,
                "key_pepper": PEPPER,
                "secret_keys": (SECRET_KEY,),
                "egress_allow": parse_allow(LOOPBACK),
                **settings,
            }
        )
        self._servers = servers
        self._pages = pages
        self._closing = AsyncExitStack()
        self._workers: list[tuple[Worker, asyncio.Task[None]]] = []
        self._processes: list[ChildProcess] = []
        self._struck: ChildProcess | None = None

    async def __aenter__(self) -> Self:
        self.sql: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(self.dsn)
        self._closing.push_async_callback(self._close_sql)
        self.connection = Connection(self.dsn, name="tests")
        self._closing.push_async_callback(self.connection.close)
        # For workers of products; a worker of services has connections of its own.
        self.database = await self._closing.enter_async_context(Database.of_worker(self.dsn))
        if self._servers == 0:
            engine = await Engine.connect(self.settings)
            self.engine = await self._closing.enter_async_context(engine)
            return self
        await self.create_org("default")
        self.key = await self.create_key()
        self.server = await self.start_server()
        self.context, self.http = self.server.context, self.server.http
        self.engine = self.context.engine
        for _ in range(1, self._servers):
            await self.start_server()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                await self.resume_struck()
        finally:
            await self._end_everything(error)

    async def _end_everything(self, error: BaseException | None) -> None:
        for process in self._processes:
            process.end()
        for worker, _ in self._workers:
            worker.stop()
        ended = await asyncio.gather(*(task for _, task in self._workers), return_exceptions=True)
        await self._closing.aclose()
        if error is None:
            for problem in ended:
                if isinstance(problem, Exception):
                    raise problem

    async def _close_sql(self) -> None:
        await self.sql.close()

    def settings_with(self, **overrides: Any) -> Settings:
        """The deployment's settings, but for these."""
        return replace(self.settings, **overrides)

    async def reconnect(self) -> None:
        """Make the test's own connection anew, after PostgreSQL was away."""
        self.sql.terminate()
        self.sql = await asyncpg.connect(self.dsn)

    # Servers, workers and maintenance in this process

    async def start_server(self, port: int = ANY_PORT) -> Server:
        """One more server, and a client of it that presents ``key``."""
        engine = await self._closing.enter_async_context(await Engine.connect(self.settings))
        context = await self._closing.enter_async_context(
            open_server_context(
                self.settings,
                engine,
                result_stores=self.products.result_stores(),
                operators=self.products.operator_remotes(self.settings),
            )
        )
        http_server = HttpServer(
            create_app(context, product_routes(self.products), self._pages),
            drain_seconds=_DRAIN_SECONDS,
            draining=context.draining,
        )
        listening = listen(LOOPBACK, port)
        client = self._client(f"http://{LOOPBACK}:{listening.getsockname()[1]}", self.key)
        serving = asyncio.create_task(http_server.serve(sockets=[listening]))
        server = Server(context, client, http_server, serving)
        self._closing.push_async_callback(server.stop)
        self._closing.push_async_callback(client.aclose)
        return server

    def _client(self, url: str, key: str) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            base_url=url,
            headers=bearer(key),
            verify=trusted_authorities(trust_env=False),
            trust_env=False,
            timeout=LIMIT_SECONDS,
        )

    async def client(self, key: str) -> httpx2.AsyncClient:
        """A client of the first server that presents another key."""
        return await self._closing.enter_async_context(self._client(str(self.http.base_url), key))

    async def start_worker(
        self,
        *services: Service,
        name: str = "",
        on_ended: Mapping[str, Callable[[ClaimedJob], None]] | None = None,
        **overrides: Any,
    ) -> Worker:
        """A worker for these services; what they declare can be called once this returns."""
        settings = self.settings_with(**overrides)
        return await self.run_worker(Worker(settings, services, name=name, on_ended=on_ended or {}))

    async def start_remote_worker(self, *services: Service) -> Worker:
        """A worker for jobs that remotes do, for http upstreams, and for these services."""
        remote = await self._closing.enter_async_context(
            RemoteExecutor(self.settings, self.products, self.database)
        )
        upstreams = await self._closing.enter_async_context(
            UpstreamExecutor(self.settings, self.database)
        )
        return await self.run_worker(
            Worker(
                self.settings,
                [*services, upstreams.service, speech_service()],
                remote_calls=remote.calls,
            )
        )

    async def start_gateway_worker(self) -> Worker:
        """A worker that calls the http upstreams of services."""
        upstreams = await self._closing.enter_async_context(
            UpstreamExecutor(self.settings, self.database)
        )
        return await self.start_worker(upstreams.service)

    async def start_graphs_worker(self) -> Worker:
        graphs = await self._closing.enter_async_context(
            GraphExecutor(self.settings, self.database)
        )
        return await self.run_worker(graphs.worker())

    async def start_batches_worker(self) -> Worker:
        """A worker that ingests the lists of batches and writes their exports."""
        batches = await self._closing.enter_async_context(
            BatchExecutor(self.settings, self.database)
        )
        return await self.run_worker(batches.worker())

    async def start_llm_worker(self) -> Worker:
        llm = await self._closing.enter_async_context(LlmExecutor(self.settings, self.database))
        return await self.run_worker(llm.worker())

    async def run_worker(self, worker: Worker) -> Worker:
        """Run a worker that the test made, until the test ends; it claims once this returns."""
        task = asyncio.create_task(worker.run())
        self._workers.append((worker, task))
        ready = asyncio.create_task(worker.ready.wait())
        await asyncio.wait({ready, task}, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if task.done():
            task.result()
        return worker

    async def stop_worker(self, worker: Worker) -> None:
        """Stop a worker, as SIGTERM does, and wait until it has. Its services stay known."""
        worker.stop()
        await self.worker_ended(worker)

    async def worker_ended(self, worker: Worker) -> None:
        """Wait for the end of a worker; raises what ended it."""
        (task,) = [task for known, task in self._workers if known is worker]
        self._workers.remove((worker, task))
        async with asyncio.timeout(LIMIT_SECONDS):
            await task

    def start_maintenance(self) -> MaintenanceRunner:
        """Run the maintenance loops; a test that wants one tick makes the loop itself."""
        maintenance = MaintenanceRunner(self.settings, self.products.maintenance())
        maintenance.start()
        self._closing.push_async_callback(maintenance.stop)
        return maintenance

    # Processes

    def start_process(
        self,
        *arguments: str,
        crash_at: str = "",
        role: str = "",
        is_one_shot: bool = False,
        cwd: Path | None = None,
        **variables: str,
    ) -> ChildProcess:
        """Run ``python -m`` with these arguments on this database, until the test ends.

        ``variables`` are settings by the name of their field; those in capitals (PYTHONPATH) are
        taken as they are. ``crash_at`` is a crash point, for ``strike``.
        """
        logs = self.folder / "logs"
        logs.mkdir(exist_ok=True)
        role = role or arguments[0]
        process = ChildProcess(
            logs / f"{len(self._processes)}-{role}",
            role,
            arguments,
            self._environment(variables, crash_at and VICTIM.crash_at(crash_at)),
            crash_at=crash_at,
            is_one_shot=is_one_shot,
            cwd=cwd,
        )
        self._processes.append(process)
        return process

    async def strike(self, process: ChildProcess) -> None:
        """Have the victim struck as the process comes to its crash point: see crash_points.py."""
        self._struck = await crash_points.strike(process, self.sql, self.reconnect)

    async def resume_struck(self) -> None:
        """Let who was stopped, and not killed, do what it was about to do, and end."""
        if self._struck is not None:
            struck, self._struck = self._struck, None
            await crash_points.go_on(struck, self.sql)

    def _environment(self, variables: Mapping[str, str], crash_at: str) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(PREFIX)}
        ours = {
            "database_url": self.dsn,
            "blob_url": self.settings.blob_url,
            "temp_dir": str(self.settings.temp_dir),
            "drain_seconds": "0.1",
            "key_pepper": PEPPER,
            "secret_keys": SECRET_KEY,
            "egress_allow": LOOPBACK,
            "log_format": "json",
        }
        named = {k: v for k, v in variables.items() if k.islower()}
        paths = filter(None, [variables.get("PYTHONPATH"), str(ROOT / "src"), str(ROOT)])
        return (
            inherited
            | {PREFIX + name.upper(): value for name, value in (ours | named).items()}
            | {k: v for k, v in variables.items() if not k.islower()}
            | {"PYTHONPATH": os.pathsep.join(paths)}
            | ({PREFIX + "CRASH_AT": crash_at} if crash_at else {})
        )

    # Tenants

    async def create_org(self, org: str, **limits: Any) -> None:
        assert await tenants.create_org(self.connection, org, org, OrgLimits(**limits))

    async def limit_org(self, org: str, **limits: Any) -> None:
        """Set what an organisation may use anew."""
        assert await tenants.limit_org(self.connection, org, OrgLimits(**limits))

    async def create_key(
        self,
        org: str = "default",
        user: str = "dev",
        scopes: Iterable[Scope] = ALL_SCOPES,
        rate: RateLimit | None = None,
        seconds_to_live: float | None = None,
    ) -> str:
        key = mint()
        made = await tenants.create_key(
            self.connection,
            org,
            key.key_id,
            user=user,
            name="test",
            digest=key.digest(PEPPER.encode()),
            scopes=scopes,
            rate=rate,
            seconds_to_live=seconds_to_live,
        )
        assert made is not None
        return key.text

    async def revoke_key(self, key: str, org: str = "default") -> None:
        assert await tenants.revoke(self.connection, org, key.split("_")[1])

    # Jobs, as a program sees them

    async def state(self, ticket: Ticket) -> State:
        return (await self.engine.get(ticket.id)).state

    async def wait_for_job(
        self, ticket: Ticket, condition: Callable[[JobView], object], what: str
    ) -> JobView:
        """The job, as soon as ``condition`` is true of it."""

        async def look() -> JobView | None:
            view = await self.engine.get(ticket.id)
            return view if condition(view) else None

        view: JobView = await eventually_async(look, what)
        return view

    async def wait_for_state(self, ticket: Ticket, state: State) -> JobView:
        return await self.wait_for_job(ticket, lambda view: view.state is state, f"it is {state}")

    async def wait_for_end(self, ticket: Ticket, *, org: str = "default") -> JobView:
        """The job once it has ended."""
        view = await self.engine.wait(ticket.id, org=org, timeout=LIMIT_SECONDS)
        assert view.terminal, f"still {view.state} after {LIMIT_SECONDS:g} s"
        return view

    async def wait_for_ends(self, tickets: list[Ticket], *, org: str = "default") -> list[JobView]:
        waits = (self.wait_for_end(ticket, org=org) for ticket in tickets)
        return list(await asyncio.gather(*waits))

    # The database, and its clock

    async def wait_until_blocked(self, application: str, kind: str = "Lock") -> int:
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

    async def make_due(self, ticket: Ticket) -> None:
        """Move the clock, as it were: a job that waits for its next try is due now."""
        await self.sql.execute(
            recorded(
                "UPDATE jobs SET run_at = now() WHERE id = $1 AND state IN ('staged', 'retrying')"
            ),
            ticket.uuid,
        )

    async def take_lease_away(self, ticket: Ticket) -> None:
        """Take a job from its holder, as a rescuer would, and give it to nobody."""
        await self.sql.execute(
            recorded("""
            UPDATE jobs
            SET state = 'retrying', lease = NULL, run_deadline = NULL, run_at = 'infinity'
            WHERE id = $1 AND lease IS NOT NULL
            """),
            ticket.uuid,
        )


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def lane_seconds(seconds: float) -> dict[Lane, float]:
    """The same ack timeout for every lane."""
    return dict.fromkeys(Lane, seconds)


def lane_slots(**slots: int) -> dict[Lane, int]:
    """So many slots for the lanes named, the usual number for the others."""
    usual = {lane: policy.concurrency for lane, policy in DEFAULT_POLICIES.items()}
    return usual | {Lane(name): number for name, number in slots.items()}
