"""A deployment whose worker fetches pages."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any, Self

import msgspec
import psutil

from coatcheck import JobView, Ticket
from coatcheck.egress import Guard
from coatcheck.products.scrape.executor import ScrapeExecutor
from coatcheck.settings.targets import parse_gateway
from tests.deployment import Deployment

FETCH = "scrape.post__fetch"


class Scraping(Deployment):
    """Only loopback may be fetched from, unless a guard says so."""

    def __init__(
        self,
        dsn: str,
        folder: Path,
        guard: Guard | None = None,
        *,
        gateway: str = "",
        tls: ssl.SSLContext | None = None,
        bytes_max: int = 10 * 1024 * 1024,
    ) -> None:
        super().__init__(
            dsn,
            folder,
            servers=0,
            scrape_gateway=parse_gateway(gateway),
            scrape_bytes_max=bytes_max,
        )
        self._guard = guard
        self._tls = tls

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        executor = ScrapeExecutor(self.settings, self._guard, tls=self._tls)
        scrape = await self._closing.enter_async_context(executor)
        await self.start_worker(scrape.service)
        return self

    async def submit(self, url: str, *, retries: int = 3, **fields: Any) -> Ticket:
        return await self.engine.submit(FETCH, {"url": url, **fields}, retries=retries)

    async def fetch(self, url: str, **fields: Any) -> JobView:
        """The job of a fetch after its first try, which need not have ended it."""
        return await self.wait_for_job(
            await self.submit(url, **fields),
            lambda view: view.failures + view.unreachables > 0 or view.terminal,
            "the first try is over",
        )

    def connections_of_this_process(self, port: int) -> int:
        """How many connections to this port are open, seen from the client's end."""
        return sum(
            each.raddr != () and each.raddr.port == port and each.status == psutil.CONN_ESTABLISHED
            for each in psutil.Process().net_connections("tcp")
        )

    async def body(self, view: JobView) -> bytes | None:
        """What was kept of the page."""
        artifacts = await self.engine.artifacts(view.id)
        if not artifacts:
            return None
        (artifact,) = artifacts
        assert artifact.name == "body"
        return b"".join([piece async for piece in self.engine.read_artifact(artifact)])


def result_of(view: JobView) -> dict[str, Any]:
    assert view.result is not None, (view.state, view.error_code, view.error_message)
    read: dict[str, Any] = msgspec.json.decode(view.result)
    return read
