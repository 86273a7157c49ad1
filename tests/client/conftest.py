"""Clients of both kinds, and servers for them to talk to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from coatcheck.client import AsyncClient, Client
from tests.client.flavours import Flavour
from tests.client.scripted_server import ScriptedServer

Connect = Callable[..., Flavour]
TOKEN = "cck_test_sesame"


@pytest.fixture(params=[AsyncClient, Client], ids=["async", "sync"])
async def connect(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Connect]:
    """Makes clients of the one kind or the other, which are closed at the end."""
    monkeypatch.setattr("random.random", lambda: 0.5)
    for proxy in ("HTTP_PROXY", "ALL_PROXY", "http_proxy", "all_proxy"):
        monkeypatch.delenv(proxy, raising=False)
    async with AsyncExitStack() as closing:

        def make(base_url: str, token: str | None = TOKEN, **options: Any) -> Flavour:
            client = Flavour(request.param, base_url, token, **options)
            closing.push_async_callback(client.close)
            return client

        yield make


@pytest.fixture
async def scripted() -> AsyncIterator[Callable[..., Any]]:
    """Starts a server that follows a script; everything in it has to happen."""
    async with AsyncExitStack() as closing:

        async def start(*script: dict[str, Any]) -> ScriptedServer:
            return await closing.enter_async_context(ScriptedServer(script))

        yield start
