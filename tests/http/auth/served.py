"""The routes of keys and billing, behind the real gate, on a real socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2

from coatcheck.core import Engine
from coatcheck.http.context import Parts, open_parts
from coatcheck.http.dispatch import Dispatcher
from coatcheck.http.routes import api_keys, stripe
from coatcheck.settings import Settings
from tests.http.conftest import serving


@asynccontextmanager
async def served(settings: Settings) -> AsyncIterator[tuple[httpx2.AsyncClient, Parts]]:
    async with (
        await Engine.connect(settings) as engine,
        open_parts(settings, engine) as parts,
        serving(
            Dispatcher(
                [
                    *api_keys.operations(settings, parts.tenants),
                    *stripe.operations(settings, parts.tenants),
                ],
                parts.gate.admit,
            )
        ) as client,
    ):
        yield client, parts


def bearer(credential: str | bytes) -> dict[str, str]:
    text = credential if isinstance(credential, str) else credential.decode()
    return {"Authorization": f"Bearer {text}"}
