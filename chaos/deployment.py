"""A whole deployment on this machine: servers, workers, PostgreSQL and a folder of blobs.

The processes run the real commands. Each reaches PostgreSQL through its own proxy, and clients
reach each server only through a proxy before its HTTP port. The checker connects to PostgreSQL
directly.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import parse_qs, urlsplit

import httpx2

from chaos.checker import witness
from chaos.history import History
from chaos.http_wire import HttpTalk
from chaos.member import ROOT, Member, PostgresMember
from chaos.postgres_wire import PostgresTalk
from chaos.proxy import Destination, Proxy
from chaos.schedule import names
from chaos.warden import TOKEN_VARIABLE, watched
from chaos.world import World
from coatcheck.core.queries import tenants
from coatcheck.db.connection import Connection
from coatcheck.db.migrate import migrate
from coatcheck.domain.tenants import ALL_SCOPES, OrgLimits, mint
from coatcheck.settings.settings import PREFIX
from tests.ports import free_port

ORGS: Final = ("a", "b")
SERVICE: Final = "chaos.handlers:chaos"
WORKER_IS_READY: Final = "worker ready"
PEPPER: Final = "a pepper that is only used in chaos runs"
MAX_CONNECTIONS: Final = 200
UP_SECONDS_MAX: Final = 120.0
_LOOK_SECONDS: Final = 0.1
_A_MONTH_SECONDS: Final = str(30 * 86_400)

SETTINGS: Final = {
    # Short, so that a pause of 8 s is beyond every lease.
    "LANE_ACK_SECONDS": "urgent=3,standard=4,bulk=6",
    "DRAIN_SECONDS": "3",
    # Nothing is pruned before the checker has looked.
    "KEEP_COMPLETED_SECONDS": _A_MONTH_SECONDS,
    "KEEP_FAILED_SECONDS": _A_MONTH_SECONDS,
    "LLM_KEEP_SECONDS": _A_MONTH_SECONDS,
    "LOG_LEVEL": "info",
    "LOG_FORMAT": "json",
    "KEY_PEPPER": PEPPER,
    "WEBHOOK_LOOPBACK": "on",
    "EGRESS_ALLOW": "127.0.0.1",
    "GRAPHS_CONCURRENCY": "1",
}
"""Default settings of every process; variables without their prefix."""


class Deployment:
    """A context manager: starts everything, and stops everything at its end."""

    def __init__(
        self,
        folder: Path,
        *,
        seed: int,
        history: History,
        world: World,
        servers: int = 2,
        workers: int = 3,
        **settings: str,
    ) -> None:
        self.folder = folder.resolve()
        self.postgres = PostgresMember(
            self.folder / "postgres", history, max_connections=MAX_CONNECTIONS
        )
        self.servers: list[Member] = []
        self.workers: list[Member] = []
        self.keys: dict[str, str] = {}
        self._seed = seed
        self._history = history
        self._world = world
        self._counts = servers, workers
        self._settings = SETTINGS | {name.upper(): value for name, value in settings.items()}
        self._token = secrets.token_hex(16)
        self._closing = AsyncExitStack()

    @property
    def dsn(self) -> str:
        """The URL of the database, without a proxy."""
        return self.postgres.dsn

    @property
    def urls(self) -> list[str]:
        """The servers as clients reach them."""
        return [_url(each.client_proxy) for each in self.servers if each.client_proxy is not None]

    @property
    def members(self) -> list[Member]:
        return [*self.servers, *self.workers]

    @property
    def proxies(self) -> list[Proxy]:
        found = [each.database_proxy for each in self.members]
        return found + [each.client_proxy for each in self.servers if each.client_proxy is not None]

    def member(self, name: str) -> Member:
        return next(each for each in self.members if each.name == name)

    async def __aenter__(self) -> Self:
        try:
            await self._open()
        except BaseException:
            await self._closing.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._closing.aclose()

    async def settle(self) -> None:
        """End every fault: all connections pass, and all processes run and answer."""
        for proxy in self.proxies:
            proxy.heal()
        self.postgres.resume()
        for member in self.members:
            member.resume()
        await self.postgres.start()
        for member in self.members:
            await member.start()
        await self.up()

    async def up(self) -> None:
        """Wait until every server answers and every worker works."""
        waiting_for = ""
        try:
            async with asyncio.timeout(UP_SECONDS_MAX):
                for member in self.members:
                    waiting_for = member.name
                    await (self.answering if member.client_proxy else self._working)(member)
        except TimeoutError:
            raise TimeoutError(
                f"{waiting_for} is not up after {UP_SECONDS_MAX:g} s; see {self.folder / 'logs'}"
            ) from None

    async def answering(self, server: Member) -> None:
        """Wait until a server is ready, as its clients see it."""
        assert server.client_proxy is not None
        url = f"{_url(server.client_proxy)}/readyz"
        async with httpx2.AsyncClient(trust_env=False, timeout=5) as client:
            while True:
                with suppress(httpx2.HTTPError):
                    if (await client.get(url)).is_success:
                        return
                await asyncio.sleep(_LOOK_SECONDS)

    async def _working(self, worker: Member) -> None:
        while not _says(worker.log_paths[-1], WORKER_IS_READY) or worker.pid == 0:
            await asyncio.sleep(_LOOK_SECONDS)

    async def _open(self) -> None:
        for name in ("logs", "temp", "blobs"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        await self._closing.enter_async_context(watched(self.folder, self._token))
        self._closing.push_async_callback(self.postgres.close)
        await self.postgres.start()
        await migrate(self.dsn)
        await witness.install(self.dsn)
        await self._furnish()
        servers, workers = self._counts
        for name in names("server", servers):
            await self._add_server(name)
        for number, name in enumerate(names("worker", workers)):
            await self._add_worker(name, self.urls[number % servers] if servers else "")
        for member in self.members:
            await member.start()
        await self.up()

    async def _furnish(self) -> None:
        """Create the organisations and their keys."""
        line = Connection(self.dsn, name="chaos")
        try:
            for org in ORGS:
                key = mint()
                await tenants.create_org(line, org, org, OrgLimits())
                await tenants.create_key(
                    line,
                    org,
                    key.key_id,
                    user=f"user-of-{org}",
                    name="chaos",
                    digest=key.digest(PEPPER.encode()),
                    scopes=ALL_SCOPES,
                )
                self.keys[org] = key.text
        finally:
            await line.close()

    async def _add_server(self, name: str) -> None:
        port = free_port()
        clients = await self._proxy(Proxy(Destination(port=port), HttpTalk))
        database = await self._database_proxy()
        command = ["serve", "--port", str(port)]
        self.servers.append(self._member(name, command, _url(clients), database, clients))
        self._closing.push_async_callback(self.servers[-1].close)

    async def _add_worker(self, name: str, public_url: str) -> None:
        database = await self._database_proxy()
        self.workers.append(self._member(name, ["worker", SERVICE], public_url, database, None))
        self._closing.push_async_callback(self.workers[-1].close)

    def _member(
        self,
        name: str,
        command: list[str],
        public_url: str,
        database: Proxy,
        clients: Proxy | None,
    ) -> Member:
        return Member(
            name,
            command,
            self._environment(public_url, database),
            self.folder / "logs",
            self._history,
            self._seed,
            database_proxy=database,
            client_proxy=clients,
        )

    async def _database_proxy(self) -> Proxy:
        query = parse_qs(urlsplit(self.dsn).query)
        path = f"{query['host'][0]}/.s.PGSQL.{query['port'][0]}"
        return await self._proxy(Proxy(Destination(path=path), PostgresTalk))

    async def _proxy(self, proxy: Proxy) -> Proxy:
        await proxy.start()
        self._closing.push_async_callback(proxy.close)
        return proxy

    def _environment(self, public_url: str, database: Proxy) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(PREFIX)}
        parts = urlsplit(self.dsn)
        own = {
            "DATABASE_URL": f"postgresql://{parts.username}@127.0.0.1:{database.port}{parts.path}"
            "?sslmode=disable",
            "BLOB_URL": (self.folder / "blobs").as_uri(),
            "TEMP_DIR": str(self.folder / "temp"),
            "PUBLIC_URL": public_url,
        }
        return (
            inherited
            | {PREFIX + name: value for name, value in (own | self._settings).items()}
            | self._world.environment
            | {
                "PYTHONPATH": os.pathsep.join(
                    [str(ROOT / "src"), str(ROOT / "packages/codegraph/src"), str(ROOT)]
                ),
                "CHAOS_FOLDER": str(self.folder),
                TOKEN_VARIABLE: self._token,
            }
        )


def _url(proxy: Proxy) -> str:
    return f"http://127.0.0.1:{proxy.port}"


def _says(log: Path, words: str) -> bool:
    return log.exists() and words in log.read_text(errors="replace")
