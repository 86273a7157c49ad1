"""A control plane on a real socket, for tests that speak HTTP to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from starlette.types import ASGIApp

from coatcheck.control.app import create_app
from coatcheck.control.server import Server, listen
from coatcheck.engine import Engine
from coatcheck.settings import Settings

ANY_PORT = 0

Served = Callable[[Settings], AbstractAsyncContextManager[httpx2.AsyncClient]]


@asynccontextmanager
async def serving(app: ASGIApp) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of ``app``, served by uvicorn on a free port of the loopback."""
    server = Server(app, drain_seconds=5)
    listening = listen("127.0.0.1", ANY_PORT)
    port = listening.getsockname()[1]
    task = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        async with httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=30
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
        serving(create_app(settings, engine)) as client,
    ):
        yield client


@pytest.fixture
def settings(dsn: str, tmp_path: Path) -> Settings:
    return Settings(database_url=dsn, blob_url=(tmp_path / "blobs").as_uri())


@pytest.fixture
async def client(settings: Settings) -> AsyncIterator[httpx2.AsyncClient]:
    async with control_plane(settings) as connected:
        yield connected
