"""A control plane on a real socket, for tests that speak HTTP to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from coatcheck.core import Engine
from coatcheck.http.app import create_app
from coatcheck.http.context import open_server_context
from coatcheck.http.dispatch import Dispatcher
from coatcheck.http.lifecycle import ServerDraining
from coatcheck.http.request import Request
from coatcheck.http.response import ASGIApp, RawHeaders
from coatcheck.http.routing import Handler, Route
from coatcheck.http.server import HttpServer, listen
from coatcheck.settings import Settings
from coatcheck.tls import trusted_authorities
from tests.all_products import SURFACES

ANY_PORT = 0
PEPPER = "a pepper that is only ever used in tests"


def app_of(handlers: Mapping[str, Handler]) -> Dispatcher:
    """An application with these handlers, each by its path, open to anyone."""
    return Dispatcher(
        [
            Route(
                methods=["GET"],
                path=path,
                name=path,
                summary="",
                handler=handler,
                responses=[],
                tag="tests",
            )
            for path, handler in handlers.items()
        ],
        _admit_nobody,
    )


async def _admit_nobody(request: Request, route: Route) -> RawHeaders:
    raise AssertionError("every operation of a test's own is open")


@asynccontextmanager
async def serving(
    app: ASGIApp, draining: ServerDraining | None = None
) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of ``app``, served by uvicorn on a free port of the loopback."""
    server = HttpServer(app, drain_seconds=5, draining=draining)
    listening = listen("127.0.0.1", ANY_PORT)
    port = listening.getsockname()[1]
    task = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        async with httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{port}",
            verify=trusted_authorities(trust_env=False),
            trust_env=False,
            timeout=30,
        ) as client:
            yield client
    finally:
        server.stop()
        await task


@asynccontextmanager
async def control_plane(settings: Settings) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of the whole control plane under ``settings``."""
    async with (
        await Engine.connect(settings) as engine,
        open_server_context(settings, engine) as parts,
        serving(create_app(parts, SURFACES), parts.draining) as client,
    ):
        yield client


@pytest.fixture
def settings(dsn: str, tmp_path: Path) -> Settings:
    return settings_for(dsn, tmp_path)


def settings_for(dsn: str, folder: Path) -> Settings:
    return Settings(database_url=dsn, blob_url=(folder / "blobs").as_uri(), key_pepper=PEPPER)


@pytest.fixture
async def client(settings: Settings) -> AsyncIterator[httpx2.AsyncClient]:
    async with control_plane(settings) as connected:
        yield connected
