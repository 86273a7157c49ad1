"""Runs the control plane's HTTP server until it is told to stop, then lets open requests end."""

from __future__ import annotations

import contextlib
import functools
import socket
from collections.abc import Iterator
from typing import Final

import uvicorn

from coatcheck.domain.errors import CoatcheckError
from coatcheck.http.connections import Connections
from coatcheck.http.lifecycle import ServerDraining
from coatcheck.http.protocol import BoundedProtocol, Bounds
from coatcheck.http.response import ASGIApp

_BACKLOG: Final = 2048
_KEEP_ALIVE_SECONDS: Final = 75


class ListenError(CoatcheckError):
    """The address cannot be listened on: the port is taken, or the host is not this machine's."""

    code = "cannot_listen"


class HttpServer(uvicorn.Server):
    """Uvicorn, stopped by ``stop``: signals are the command's to handle, not the server's.

    ``draining`` is told when it stops, so that whoever waits for the sake of a caller answers.
    ``when_full`` answers in place of ``app`` on connections that are more than there may be.
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
        bounds = bounds or Bounds()
        protocol = functools.partial(
            BoundedProtocol,
            bounds=bounds,
            drains=lambda: self._draining.begun,
            others=Connections(
                bounds.connections, bounds.connections_of_one_address, bounds.proxies
            ),
            when_full=when_full,
        )
        super().__init__(
            uvicorn.Config(
                app,
                http=protocol,  # type: ignore[arg-type] # what makes one will do
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
        """Stop taking connections; ``serve`` returns when the open requests have ended."""
        self._draining.begin()
        for connection in self.server_state.connections:
            assert isinstance(connection, BoundedProtocol)
            connection.drain()
        self.should_exit = True

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
            "Choose another with --port or COATCHECK_PORT, or stop what uses it."
        ) from error
    # Its connections inherit it. uvloop sees to it by itself; asyncio does not on a socket that was
    # made so, and an answer's body would wait 40 ms for its headers to be acknowledged.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening
