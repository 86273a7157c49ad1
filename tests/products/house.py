"""A whole deployment in the test's own process: control planes on sockets, workers, tenants.

Every request goes over a real socket to a real server on a real database.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx2

from coatcheck import Engine, Service, Settings
from coatcheck.core.queries import tenants
from coatcheck.db.connection import Connection
from coatcheck.domain.tenants import ALL_SCOPES, OrgLimits, RateLimit, Scope, mint
from coatcheck.egress.urls import trusted_authorities
from coatcheck.hosting.serving import product_routes
from coatcheck.hosting.working import RemoteExecutor
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
from coatcheck.worker.worker import Worker
from tests.sealed_secrets import SECRET_KEY

PEPPER = "a pepper that is only ever used in tests"
LOOPBACK = "127.0.0.1"
ANY_PORT = 0
_DRAIN_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Replica:
    """One control plane on a socket, and a client of it."""

    parts: ServerContext
    http: httpx2.AsyncClient
    server: HttpServer
    serving: asyncio.Task[None]

    async def drain(self) -> None:
        """Tell the server to stop, as SIGTERM does, and wait until it has."""
        self.server.stop()
        await self.serving


class House:
    """A deployment on ``dsn``. A context manager."""

    def __init__(
        self, dsn: str, folder: Path, *, pages: Pages | None = None, **overrides: Any
    ) -> None:
        self._pages = pages
        self.products = Products.load(overrides.get("products", ()))
        self.settings = Settings(
            **{
                "database_url": dsn,
                "blob_url": (folder / "blobs").as_uri(),
                "temp_dir": folder / "temp",
                "drain_seconds": 0.0,
                "key_pepper": PEPPER,
                "secret_keys": (SECRET_KEY,),
                "egress_allow": parse_allow(LOOPBACK),
                **overrides,
            }
        )
        self._closing = AsyncExitStack()
        self._workers: list[tuple[Worker, asyncio.Task[None]]] = []

    async def __aenter__(self) -> Self:
        self._db = Connection(self.settings.database_url, name="tests")
        self._closing.push_async_callback(self._db.close)
        await self.org("default")
        self.key = await self.create_key()
        self.first = await self.replica()
        self.parts, self.http = self.first.parts, self.first.http
        self.engine = self.parts.engine
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for worker, _ in self._workers:
            worker.stop()
        await asyncio.gather(*(task for _, task in self._workers), return_exceptions=True)
        await self._closing.aclose()

    # Who serves and who works

    async def replica(self, port: int = ANY_PORT) -> Replica:
        """One more control plane, and a client of it that presents the house's key."""
        engine = await self._closing.enter_async_context(await Engine.connect(self.settings))
        parts = await self._closing.enter_async_context(
            open_server_context(
                self.settings,
                engine,
                result_stores=self.products.result_stores(),
                operators=self.products.operator_remotes(self.settings),
            )
        )
        server = HttpServer(
            create_app(parts, product_routes(self.products), self._pages),
            drain_seconds=_DRAIN_SECONDS,
            draining=parts.draining,
        )
        listening = listen(LOOPBACK, port)
        port = listening.getsockname()[1]
        client = httpx2.AsyncClient(
            base_url=f"http://{LOOPBACK}:{port}",
            headers=bearer(self.key),
            verify=trusted_authorities(trust_env=False),
            trust_env=False,
            timeout=60,
        )
        replica = Replica(
            parts, client, server, asyncio.create_task(server.serve(sockets=[listening]))
        )
        self._closing.push_async_callback(replica.drain)
        self._closing.push_async_callback(client.aclose)
        return replica

    async def work(self, *services: Service) -> Worker:
        """A worker for these services; what they declare can be called once this returns."""
        return await self._hire(Worker(self.settings, services))

    async def work_remotely(self, *services: Service) -> Worker:
        """A worker for what is done elsewhere, and what calls http upstreams, and these."""
        remote = await self._closing.enter_async_context(
            RemoteExecutor(self.settings, self.products)
        )
        upstreams = await self._closing.enter_async_context(UpstreamExecutor(self.settings))
        return await self._hire(
            Worker(
                self.settings,
                [*services, upstreams.service, speech_service()],
                remote_calls=remote.calls,
            )
        )

    async def analyse_archives(self) -> Worker:
        """A worker for the archives of the graphs surface."""
        graphs = await self._closing.enter_async_context(GraphExecutor(self.settings))
        return await self._hire(graphs.worker())

    async def take_in_lists(self) -> Worker:
        """A worker for the lists and exports of the batches surface."""
        batches = await self._closing.enter_async_context(BatchExecutor(self.settings))
        return await self._hire(batches.worker())

    async def ask_models(self) -> Worker:
        """A worker for the chats of the llm surface."""
        llm = await self._closing.enter_async_context(LlmExecutor(self.settings))
        return await self._hire(llm.worker())

    async def _hire(self, worker: Worker) -> Worker:
        task = asyncio.create_task(worker.run())
        self._workers.append((worker, task))
        ready = asyncio.create_task(worker.ready.wait())
        await asyncio.wait({ready, task}, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if task.done():
            task.result()
        return worker

    async def dismiss(self, worker: Worker) -> None:
        """Stop a worker. What it declared stays known."""
        ((hired, task),) = [each for each in self._workers if each[0] is worker]
        hired.stop()
        await task
        self._workers.remove((hired, task))

    async def call_upstreams(self) -> Worker:
        """A worker that makes the calls of services with http upstreams."""
        upstreams = await self._closing.enter_async_context(UpstreamExecutor(self.settings))
        return await self.work(upstreams.service)

    def keep_up(self) -> MaintenanceRunner:
        """The upkeep loops."""
        upkeep = MaintenanceRunner(self.settings, self.products.maintenance())
        upkeep.start()
        self._closing.push_async_callback(upkeep.stop)
        return upkeep

    # Who may call

    async def org(self, org: str, **limits: Any) -> None:
        assert await tenants.create_org(self._db, org, org, OrgLimits(**limits))

    async def limit(self, org: str, **limits: Any) -> None:
        """Set what an organisation may use anew."""
        assert await tenants.limit_org(self._db, org, OrgLimits(**limits))

    async def timeouts(self, org: str) -> list[float]:
        """How many seconds the call of each job of an organisation may take: of a batch's task its
        payload alone says it."""
        rows = await self._db.fetch(
            "SELECT coalesce(timeout_seconds, (convert_from(payload, 'UTF8')::jsonb"
            " #>> '{call,timeout_seconds}')::real) AS seconds"
            " FROM jobs WHERE org_id = $1 ORDER BY id",
            org,
        )
        return [row["seconds"] for row in rows]

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
            self._db,
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

    async def revoke(self, key: str, org: str = "default") -> None:
        assert await tenants.revoke(self._db, org, key.split("_")[1])


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}
