"""The HTTP server process: Uvicorn, with bounded connections and a graceful stop."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
from collections.abc import Iterator
from typing import Final

import uvicorn

from coatcheck.domain.errors import CoatcheckError
from coatcheck.http.connections import ConnectionLimits
from coatcheck.http.lifecycle import ServerDraining
from coatcheck.http.protocol import BoundedProtocol, Bounds
from coatcheck.http.response import ASGIApp

_BACKLOG: Final = 2048
_KEEP_ALIVE_SECONDS: Final = 75
_TICK_SECONDS: Final = 1.0


class ListenError(CoatcheckError):
    """The server cannot listen on its address: the port is in use, or the host is not local."""

    code = "cannot_listen"


class HttpServer(uvicorn.Server):
    """Uvicorn, stopped by ``stop``: the command handles signals, not the server.

    ``draining`` begins when the server stops, so that open responses are finished early.
    ``when_full`` answers in place of ``app`` on connections over the limit.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        drain_seconds: float,
        draining: ServerDraining | None = None,
        bounds: Bounds | None = None,
        when_full: ASGIApp | None = None,
    ) -> None:
        self._draining = draining or ServerDraining()
        self._stopping = asyncio.Event()
        bounds = bounds or Bounds()
        protocol = functools.partial(
            BoundedProtocol,
            bounds=bounds,
            drains=lambda: self._draining.begun,
            limits=ConnectionLimits(
                bounds.connections, bounds.connections_of_one_address, bounds.proxies
            ),
            when_full=when_full,
        )
        super().__init__(
            uvicorn.Config(
                app,
                http=protocol,  # type: ignore[arg-type] # a factory works as well as a class
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=max(1, round(drain_seconds)),
                backlog=_BACKLOG,
            )
        )

    def stop(self) -> None:
        """Stop accepting connections. ``serve`` returns when the open requests have ended."""
        self._draining.begin()
        for connection in self.server_state.connections:
            assert isinstance(connection, BoundedProtocol)
            connection.drain()
        self.should_exit = True
        self._stopping.set()

    async def main_loop(self) -> None:
        """Uvicorn's looks ten times a second whether to stop. This one wakes up once a second, for
        the header ``Date``, and stops at once."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TICK_SECONDS):
                    await self._stopping.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises ListenError, saying why and what to do."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise ListenError(
            f"cannot listen on {host} port {port}: {error.strerror or error}\n"
            "Choose another port with --port or COATCHECK_PORT, or stop the process that uses it."
        ) from error
    # Connections inherit this option. uvloop sets it anyway; asyncio does not on a socket that we
    # made, and the body of a response would wait 40 ms for the acknowledgement of its headers.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening
