"""Proxies before the database of a test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit

from chaos.postgres_wire import PostgresTalk
from chaos.proxy import Destination, Proxy


@asynccontextmanager
async def before(dsn: str) -> AsyncIterator[tuple[Proxy, str]]:
    """A proxy before the server of ``dsn``, and the URL that leads through it."""
    parts = urlsplit(dsn)
    query = parse_qs(parts.query)
    if "host" in query:
        where = Destination(path=f"{query['host'][0]}/.s.PGSQL.{query['port'][0]}")
    else:
        where = Destination(port=parts.port or 5432)
    proxy = Proxy(where, PostgresTalk)
    await proxy.start()
    try:
        user = parts.netloc.rpartition("@")[0]
        yield proxy, f"postgresql://{user}@127.0.0.1:{proxy.port}{parts.path}?sslmode=disable"
    finally:
        await proxy.close()
