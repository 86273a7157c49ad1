"""The measured servers: one process each, on a loopback port."""

import asyncio
import json
import secrets
import socket
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from bench.http.apps.fastapi_insert import ADDRESS_VARIABLE
from bench.processes import Child, Processes

READY_SECONDS_MAX = 30.0
LOOK_SECONDS = 0.05
ORG = "default"
_COATCHECK = (sys.executable, "-m", "coatcheck.cli")
TWO_WRITES = (sys.executable, "-m", "bench.http.apps.two_writes")
"""Coatcheck's command line with a server that writes head and body separately."""
_SERVICE = "bench.contenders.coatcheck_service:noop"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


@asynccontextmanager
async def comparison_server(
    app: str, processes: Processes, environment: Mapping[str, str] | None = None
) -> AsyncIterator[str]:
    """A comparison application on uvicorn, like Coatcheck's server; returns its base URL."""
    port = free_port()
    child = await processes.start(
        "comparison_server",
        [
            *(sys.executable, "-m", "uvicorn", f"bench.http.apps.{app}:app"),
            *("--host", "127.0.0.1", "--port", str(port)),
            *("--loop", "uvloop", "--http", "httptools", "--no-access-log"),
            *("--log-level", "warning"),
        ],
        environment or {},
    )
    try:
        await answering(port, child)
        yield f"http://127.0.0.1:{port}"
    finally:
        await processes.stop(child)


def insert_environment(address: str) -> dict[str, str]:
    return {ADDRESS_VARIABLE: address}


@dataclass(frozen=True)
class ControlPlane:
    """A running ``coatcheck serve``, and a valid key."""

    port: int
    key: str
    environment: Mapping[str, str]
    child: Child

    @property
    def submit_path(self) -> str:
        return f"/api/v1/orgs/{ORG}/services/noop/async/run"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@asynccontextmanager
async def control_plane(
    address: str,
    processes: Processes,
    settings: Mapping[str, str] | None = None,
    *,
    program: Sequence[str] = _COATCHECK,
) -> AsyncIterator[ControlPlane]:
    """``coatcheck serve`` with one organisation and one key, with default settings except
    ``settings``, which workers have as well. ``program`` runs it."""
    environment = {
        **(settings or {}),
        "COATCHECK_DATABASE_URL": address,
        "COATCHECK_KEY_PEPPER": secrets.token_hex(32),
        "COATCHECK_LOG_LEVEL": "warning",
    }
    await _command(processes, ["orgs", "create", ORG], environment)
    made = await _command(
        processes, ["keys", "create", "--org", ORG, "--user", "bench", "--json"], environment
    )
    port = free_port()
    child = await processes.start(
        "coatcheck-serve", [*program, "serve", "--port", str(port)], environment
    )
    try:
        await answering(port, child)
        yield ControlPlane(port, json.loads(made)["key"], environment, child)
    finally:
        await processes.stop(child)


async def admin_key(plane: ControlPlane, processes: Processes, *others: str) -> str:
    """A key that may register services, with the further scopes ``others``."""
    scopes = [word for scope in ("admin", *others) for word in ("--scope", scope)]
    made = await _command(
        processes,
        ["keys", "create", "--org", ORG, "--user", "bench", *scopes, "--json"],
        plane.environment,
    )
    key: str = json.loads(made)["key"]
    return key


@asynccontextmanager
async def worker(
    plane: ControlPlane,
    processes: Processes,
    environment: Mapping[str, str],
    *,
    service: str = _SERVICE,
) -> AsyncIterator[Child]:
    """A worker process; its service can be called when the catalogue has it."""
    child = await processes.start(
        "coatcheck-worker", [*_COATCHECK, "worker", service], {**plane.environment, **environment}
    )
    try:
        yield child
    finally:
        await processes.stop(child)


async def answering(port: int, child: Child) -> None:
    """Wait until the server accepts connections."""
    deadline = time.monotonic() + READY_SECONDS_MAX
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionError:
            child.raise_if_ended()
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(LOOK_SECONDS)
        else:
            writer.close()
            return


async def _command(
    processes: Processes, arguments: list[str], environment: Mapping[str, str]
) -> str:
    child = await processes.start(
        "coatcheck-command", [*_COATCHECK, *arguments], environment, piped=True
    )
    out, _ = await child.process.communicate()
    if child.process.returncode != 0:
        child.raise_if_ended()
    return out.decode()
