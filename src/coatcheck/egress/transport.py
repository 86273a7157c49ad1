"""The HTTP transport of guarded clients: it connects only to addresses that were checked.

What opens the connections is in ``connector.py``, which is loaded with the first request: a server
that calls nobody needs none of it.
"""

from __future__ import annotations

from contextvars import ContextVar
from ssl import SSLContext
from typing import TYPE_CHECKING, Any, Final

import httpx2

from coatcheck.egress.urls import Scheme, target_of
from coatcheck.tls import trusted_authorities

if TYPE_CHECKING:
    from coatcheck.egress.connector import PoolTransport
    from coatcheck.egress.guard import Guard

_ORG_EXTENSION: Final = "coatcheck.org"
request_org: ContextVar[str] = ContextVar("organisation of the request that connects", default="")
"""Passes the organisation from the transport to the connector. The pool calls the connector in the
request's own task, without the request."""


def charged_to(org: str) -> dict[str, Any]:
    """The ``extensions`` of a request that name the organisation its look-ups count for.

    Requests without it count for the deployment itself.
    """
    return {_ORG_EXTENSION: org}


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Sends requests through the guard. One pool per scheme, because their rules differ."""

    def __init__(
        self, guard: Guard, *, limits: httpx2.Limits, verify: SSLContext | None = None
    ) -> None:
        self._guard = guard
        self._limits = limits
        self._verify = verify
        self._pools: dict[Scheme, PoolTransport] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        target = target_of(request.url)
        charged = request_org.set(request.extensions.get(_ORG_EXTENSION, ""))
        try:
            return await self._pool(target.scheme).handle_async_request(request)
        finally:
            request_org.reset(charged)

    def _pool(self, scheme: Scheme) -> PoolTransport:
        """The pool of a scheme, made when it is first used: reading the authorities takes long."""
        if scheme not in self._pools:
            from coatcheck.egress.connector import CheckedConnector, PoolTransport

            authorities = None
            if scheme == "https":
                authorities = trusted_authorities() if self._verify is None else self._verify
            connector = CheckedConnector(self._guard, scheme)
            self._pools[scheme] = PoolTransport(connector, self._limits, authorities)
        return self._pools[scheme]

    async def aclose(self) -> None:
        for pool in self._pools.values():
            await pool.aclose()
