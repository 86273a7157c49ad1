"""Opens the connections of guarded clients: each name is resolved once, each address checked.

The connection pool is httpcore2's, keyed by scheme, host and port; only the step that opens a
socket is ours. A reused connection was checked when it was opened, and still leads to the same
address.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Iterable
from ssl import SSLContext
from typing import TYPE_CHECKING, Any

import httpcore2
import httpx2

from coatcheck.egress.resolver import NameNotFound
from coatcheck.egress.transport import request_org
from coatcheck.egress.urls import Scheme, target_of

if TYPE_CHECKING:
    from coatcheck.egress.guard import Guard


class GuardedConnection(httpcore2.AsyncNetworkStream):
    """An httpcore2 stream that remembers its socket."""

    def __init__(self, stream: httpcore2.AsyncNetworkStream) -> None:
        self._stream = stream
        self._socket = stream.get_extra_info("socket")

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return await self._stream.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        return GuardedConnection(
            await self._stream.start_tls(ssl_context, server_hostname, timeout)
        )

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":
            return self._is_readable()
        return self._stream.get_extra_info(info)

    def _is_readable(self) -> bool:
        """Whether unexpected data arrived: on an idle connection, that it was closed."""
        descriptor = -1 if self._socket is None else self._socket.fileno()
        if descriptor < 0:
            return True  # closed already
        watch = select.poll()
        watch.register(descriptor, select.POLLIN)
        return bool(watch.poll(0))


class PoolTransport(httpx2.AsyncHTTPTransport):
    """httpx2's transport on a pool that opens its sockets through a connector.

    httpx2 has no argument for that, so this replaces its ``__init__`` and makes the pool itself. If
    httpx2 renamed the attribute, every request would fail; none would bypass the guard.
    """

    def __init__(
        self, connector: CheckedConnector, limits: httpx2.Limits, verify: SSLContext | None
    ) -> None:
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=verify,
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            keepalive_expiry=limits.keepalive_expiry,
            network_backend=connector,
        )


class CheckedConnector(httpcore2.AsyncNetworkBackend):
    """Opens a socket: resolves once, checks every address, connects to one of them."""

    def __init__(self, guard: Guard, scheme: Scheme) -> None:
        self._guard = guard
        self._scheme = scheme
        self._sockets = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        url = httpx2.URL(scheme=self._scheme, host=host, port=port)
        try:
            addresses = await self._guard.addresses_of(target_of(url), request_org.get(), timeout)
        except NameNotFound as error:
            raise httpcore2.ConnectError(str(error)) from error
        except TimeoutError as error:
            raise httpcore2.ConnectTimeout(f"resolving {host} took too long") from error
        failure: httpcore2.ConnectError | httpcore2.ConnectTimeout | None = None
        for tried, address in enumerate(addresses):
            # An address that does not answer leaves the others their share of the time.
            left = None if deadline is None else max(0.0, deadline - loop.time())
            share = None if left is None else left / (len(addresses) - tried)
            try:
                return GuardedConnection(
                    await self._sockets.connect_tcp(
                        str(address), port, share, local_address, socket_options
                    )
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        assert failure is not None, "a name has an address, or it is not found"
        raise failure
