"""A deployment whose worker calls the http upstreams of services."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

import psutil

from coatcheck import Ticket
from coatcheck.core.upstream_calls import encode_call, upstream_call
from coatcheck.domain.catalogue import UPSTREAM_ENDPOINT, HttpTarget
from coatcheck.domain.service_definition import HIDDEN
from coatcheck.egress import Guard
from coatcheck.products.gateway.executor import UpstreamExecutor
from coatcheck.settings.egress_allow import parse_allow
from tests.deployment import Deployment
from tests.sealed_secrets import store_secrets


class UpstreamJobs(Deployment):
    """Submits calls as the gateway does. Only loopback may be called, unless a guard says so."""

    def __init__(self, dsn: str, folder: Path, guard: Guard | None = None) -> None:
        super().__init__(dsn, folder, servers=0, egress_allow=parse_allow("127.0.0.0/8"))
        self._guard = guard
        self._executor = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        await self._closing.enter_async_context(self._executor)
        executor = UpstreamExecutor(self.settings, self.database, self._guard)
        upstreams = await self._executor.enter_async_context(executor)
        self._worker = await self.start_worker(upstreams.service)
        return self

    async def stop_working(self) -> None:
        """Stop the worker and close its connections to upstreams."""
        await self.stop_worker(self._worker)
        await self._executor.aclose()

    async def submit(
        self,
        url: str,
        *,
        method: str = "POST",
        headers: Iterable[tuple[bytes, bytes]] = (),
        own_headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        timeout_seconds: float = 30.0,
        **options: Any,
    ) -> Ticket:
        target = HttpTarget(url, {}, timeout_seconds)
        if own_headers:
            stored_as = await store_secrets(self.settings, target.address, own_headers)
            target = HttpTarget(url, dict.fromkeys(own_headers, HIDDEN), timeout_seconds, stored_as)
        call = upstream_call(url=url, method=method, headers=headers, body=body, target=target)
        return await self.engine.submit(UPSTREAM_ENDPOINT, encode_call(call), **options)

    def connections_of_this_process(self, port: int) -> int:
        """How many connections to this port are open, seen from the client's end."""
        return sum(
            each.raddr != () and each.raddr.port == port and each.status == psutil.CONN_ESTABLISHED
            for each in psutil.Process().net_connections("tcp")
        )
