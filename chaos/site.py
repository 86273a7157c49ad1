"""An ASGI application on a loopback port, in the caller's event loop."""

from __future__ import annotations

import asyncio
import socket
from types import TracebackType
from typing import Any, Self

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

_BACKLOG = 512
_IDLE_SECONDS_MAX = 600


class Site:
    """A context manager. ``url`` is known from the start, for the settings of others.

    Not ``uvicorn.Server``, which would install signal handlers for the whole run.
    """

    def __init__(self, app: Any, port: int = 0) -> None:
        self._config = uvicorn.Config(
            app,
            interface="asgi3",
            lifespan="off",
            proxy_headers=False,
            log_config=None,
            log_level="critical",
            access_log=False,
            timeout_keep_alive=_IDLE_SECONDS_MAX,
        )
        self._state = ServerState()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", port))
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        host, port = self._socket.getsockname()
        return f"http://{host}:{port}"

    async def __aenter__(self) -> Self:
        self._config.load()
        self._socket.listen(_BACKLOG)
        self._server = await asyncio.get_running_loop().create_server(
            lambda: HttpToolsProtocol(self._config, self._state, {}), sock=self._socket
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._server is not None:
            self._server.close()
        for connection in list(self._state.connections):
            connection.transport.abort()
        for task in list(self._state.tasks):
            task.cancel()
        await asyncio.gather(*self._state.tasks, return_exceptions=True)
        self._socket.close()
