"""Runs the control plane's HTTP server until it is told to stop, then lets open requests end."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from coatcheck.domain.errors import CoatcheckError

_BACKLOG: Final = 2048
_KEEP_ALIVE_SECONDS: Final = 75


class ListenError(CoatcheckError):
    """The address cannot be listened on: the port is taken, or the host is not this machine's."""

    code = "cannot_listen"


class Server(uvicorn.Server):
    """Uvicorn, stopped by ``stop``: signals are the command's to handle, not the server's."""

    def __init__(self, app: ASGIApp, *, drain_seconds: float) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http="httptools",
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
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises ListenError, saying why and what to do."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise ListenError(
            f"cannot listen on {host} port {port}: {error.strerror or error}\n"
            "Choose another with --port or COATCHECK_PORT, or stop what uses it."
        ) from error
