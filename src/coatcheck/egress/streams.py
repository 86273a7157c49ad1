"""A network stream with a cheap check for whether the other end has closed.

The connection pool checks every idle connection at every request. httpcore2's own streams look up
the addresses of both ends first each time; with a hundred idle connections that takes longer than
the request.
"""

from __future__ import annotations

import select
from ssl import SSLContext
from typing import Any

import httpcore2


class Connection(httpcore2.AsyncNetworkStream):
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
        return Connection(await self._stream.start_tls(ssl_context, server_hostname, timeout))

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
