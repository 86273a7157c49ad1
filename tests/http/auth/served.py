"""The routes of keys and billing, behind the real gate, on a real socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2

from coatcheck.core import Engine
from coatcheck.http.context import ServerContext, open_server_context
from coatcheck.http.dispatch import Dispatcher
from coatcheck.http.routes import api_keys, stripe
from coatcheck.settings import Settings
from tests.http.conftest import serving


@asynccontextmanager
async def served(settings: Settings) -> AsyncIterator[tuple[httpx2.AsyncClient, ServerContext]]:
    async with (
        await Engine.connect(settings) as engine,
        open_server_context(settings, engine) as server,
        serving(
            Dispatcher(
                [
                    *api_keys.routes(settings, server.tenants),
                    *stripe.routes(settings, server.tenants),
                ],
                server.gate.admit,
            )
        ) as client,
    ):
        yield client, server


def bearer(credential: str | bytes) -> dict[str, str]:
    text = credential if isinstance(credential, str) else credential.decode()
    return {"Authorization": f"Bearer {text}"}
