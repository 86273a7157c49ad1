"""The target of an attack: one server, one worker and a PostgreSQL, run by the real commands.

The commands may be those of another checkout (``source``), so that the same attack can be measured
before and after a change.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import httpx2
import psutil

from chaos.deployment import WORKER_IS_READY
from chaos.member import ROOT
from chaos.warden import TOKEN_VARIABLE, watched
from coatcheck.core.queries import tenants
from coatcheck.db.connection import Connection
from coatcheck.db.embedded import EmbeddedPostgres
from coatcheck.domain.tenants import ALL_SCOPES, DEFAULT_WORKSPACE, Scope, mint
from coatcheck.settings.settings import PREFIX
from coatcheck.tls import trusted_authorities
from tests.forked_process import ForkedProcess
from tests.ports import free_port

ATTACKER: Final = "attacker"
BYSTANDER: Final = "bystander"
OPERATOR: Final = "operator"
SERVICES: Final = "chaos.abuse.services:abuse"
MIB: Final = 2**20
UP_SECONDS_MAX: Final = 60.0
_LOOK_SECONDS: Final = 0.05
_SAMPLE_SECONDS: Final = 0.02

SETTINGS: Final = {
    "LOG_LEVEL": "info",
    "LOG_FORMAT": "json",
    "KEY_PEPPER": "a pepper that is only ever used in attacks",
    "WEBHOOK_LOOPBACK": "on",
    "EGRESS_ALLOW": "127.0.0.1",
    "GRAPHS_CONCURRENCY": "0",
    "DRAIN_SECONDS": "1",
    "OPERATOR_ORG": OPERATOR,
}
"""Default settings of the processes."""


class Target:
    """A context manager: starts everything, and stops everything at its end."""

    def __init__(
        self,
        folder: Path,
        *,
        source: Path = ROOT,
        short: bool = False,
        dsn: str | None = None,
        **settings: str,
    ) -> None:
        """``dsn``: a migrated database to use instead of a new PostgreSQL."""
        self.folder = folder.resolve()
        self.short = short
        self.port = free_port()
        self.keys: dict[str, str] = {}
        """A key with every scope for each organisation."""
        self._source = source.resolve()
        self._settings: Mapping[str, str] = SETTINGS | settings
        self._token = secrets.token_hex(16)
        self._postgres = None if dsn else EmbeddedPostgres(self.folder / "postgres")
        self.dsn = dsn or ""
        self._processes: dict[str, subprocess.Popen[bytes] | ForkedProcess] = {}
        self._closing = AsyncExitStack()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def pid(self, name: str) -> int:
        """The process id of the ``server`` or the ``worker``."""
        return self._processes[name].pid

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def client(self, org: str = ATTACKER, *, timeout: float = 30.0) -> httpx2.AsyncClient:
        """Calls the server with a key of ``org``; any number of connections."""
        return httpx2.AsyncClient(
            base_url=self.url,
            headers={"Authorization": f"Bearer {self.keys[org]}"},
            limits=httpx2.Limits(max_connections=None),
            verify=trusted_authorities(trust_env=False),
            trust_env=False,
            timeout=timeout,
        )

    async def coatcheck(self, *arguments: str) -> str:
        """Run a command of the source against this deployment; returns its output."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "coatcheck.cli",
            *arguments,
            cwd=self.folder,
            env=self._environment(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, errors = await process.communicate()
        if process.returncode:
            raise RuntimeError(f"coatcheck {' '.join(arguments)}: {errors.decode()[-2_000:]}")
        return output.decode()

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

    async def _open(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o711)  # PostgreSQL's account needs access to its own folder
        await self._closing.enter_async_context(watched(self.folder, self._token))
        if self._postgres is not None:
            self._closing.push_async_callback(asyncio.to_thread, self._postgres.stop, "immediate")
            await asyncio.to_thread(self._postgres.start)
            self.dsn = self._postgres.dsn
            await self.coatcheck("migrate")
        for org in (ATTACKER, BYSTANDER, OPERATOR):
            await self._on_database(partial(_create_org, org))
            self.keys[org] = await self.new_key(org)
        self._start("server", "serve", "--port", str(self.port))
        self._start("worker", "worker", SERVICES)
        async with asyncio.timeout(UP_SECONDS_MAX):
            await self._answers()
            while WORKER_IS_READY not in self.log("worker"):
                self._check_alive("worker")
                await asyncio.sleep(_LOOK_SECONDS)

    async def new_key(self, org: str, scopes: frozenset[Scope] = ALL_SCOPES) -> str:
        """Create another key of an organisation."""
        key = mint()
        await self._on_database(
            lambda line: tenants.create_key(
                line,
                org,
                key.key_id,
                user=f"user-of-{org}",
                name="abuse",
                digest=key.digest(SETTINGS["KEY_PEPPER"].encode()),
                scopes=scopes,
            )
        )
        return key.text

    async def _on_database(self, act: Callable[[Connection], Awaitable[object]]) -> None:
        line = Connection(self.dsn, name="abuse")
        try:
            await act(line)
        finally:
            await line.close()

    def _start(self, name: str, *command: str) -> None:
        process: subprocess.Popen[bytes] | ForkedProcess
        with (self.folder / f"{name}.log").open("wb") as log:
            if self._source == ROOT and self.short:
                process = ForkedProcess(
                    "coatcheck.cli",
                    command,
                    cwd=self.folder,
                    env=self._environment(),
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            else:
                process = subprocess.Popen(
                    [sys.executable, "-m", "coatcheck.cli", *command],
                    cwd=self.folder,
                    env=self._environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        self._processes[name] = process
        self._closing.push_async_callback(asyncio.to_thread, process.wait)
        self._closing.callback(process.kill)

    async def _answers(self) -> None:
        async with httpx2.AsyncClient(trust_env=False, timeout=5) as client:
            while True:
                self._check_alive("server")
                with suppress(httpx2.HTTPError):
                    if (await client.get(f"{self.url}/readyz")).is_success:
                        return
                await asyncio.sleep(_LOOK_SECONDS)

    def _check_alive(self, name: str) -> None:
        if self._processes[name].poll() is not None:
            raise RuntimeError(f"the {name} has ended:\n{self.log(name)[-5_000:]}")

    def _environment(self) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(PREFIX)}
        paths = [self._source / "src", ROOT]
        if self._source != ROOT:  # ours is installed
            paths.insert(1, self._source / "packages/codegraph/src")
        own = {
            "DATABASE_URL": self.dsn,
            "BLOB_URL": (self.folder / "blobs").as_uri(),
            "TEMP_DIR": str(self.folder / "temp"),
            "PUBLIC_URL": self.url,
        }
        return (
            inherited
            | {PREFIX + name: value for name, value in (own | dict(self._settings)).items()}
            | {
                "PYTHONPATH": os.pathsep.join(map(str, paths)),
                TOKEN_VARIABLE: self._token,
            }
        )


async def _create_org(org: str, line: Connection) -> None:
    # In plain SQL: another source's tables may lack columns that ours have.
    await line.fetch("INSERT INTO orgs (org_id, name) VALUES ($1, $1)", org)
    await line.fetch(
        "INSERT INTO workspaces (org_id, workspace_id) VALUES ($1, $2)", org, DEFAULT_WORKSPACE
    )


class Memory:
    """A context manager: watches the resident memory of a process, from a thread."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.before = self.peak = self.after = self.now()

    def now(self) -> int:
        """In MiB, including its child processes."""
        total = 0
        for each in (self._process, *self._process.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                total += each.memory_info().rss
        return int(total // MIB)

    @property
    def growth(self) -> int:
        return self.peak - self.before

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.after = self.now()
        self.peak = max(self.peak, self.after)

    def _watch(self) -> None:
        while not self._stop.wait(_SAMPLE_SECONDS):
            self.peak = max(self.peak, self.now())
