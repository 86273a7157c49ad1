"""The upstream as a server that can stop and restart."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from examples.ollama_upstream.catalogue import MODELS, Model, Shelf
from examples.ollama_upstream.control import PREFIX, Control
from examples.ollama_upstream.exchange import Exchange, Receive, Scope, Send
from examples.ollama_upstream.faults import Fault
from examples.ollama_upstream.memory import Memory
from examples.ollama_upstream.records import Seen
from examples.ollama_upstream.service import Service
from examples.ollama_upstream.tuning import Tuning

_BACKLOG = 512
_IDLE_SECONDS_MAX = 3_600
"""Ollama closes no idle connection."""
_log = logging.getLogger(__name__)


class OllamaUpstream:
    """An Ollama-compatible server in this process's event loop. A context manager.

    ``models`` are names or ``Model``s. ``token`` is the token that callers must send. Everything
    else is a field of ``Tuning`` and may be changed in ``upstream.tuning`` while it runs.
    """

    def __init__(
        self,
        models: Iterable[Model | str] = MODELS,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
        remember: int = 1_000,
        **tuning: Any,
    ) -> None:
        self.tuning = Tuning(**tuning)
        self._service = Service(
            Shelf(models),
            self.tuning,
            token=token,
            remember=remember,
            cut=self._cut,
            go_away=self._go_away_for,
        )
        self._control = Control(self._service, self._go_away_for)
        self._address = (host, port)
        self._state = ServerState()
        self._listening: asyncio.Server | None = None
        self._coming_back: asyncio.Task[None] | None = None
        self._config = uvicorn.Config(
            self._serve,
            interface="asgi3",
            lifespan="off",
            proxy_headers=False,
            log_config=None,
            log_level="critical",
            access_log=False,
            timeout_keep_alive=_IDLE_SECONDS_MAX,
        )

    @property
    def url(self) -> str:
        host, port = self._address
        return f"http://{host}:{port}"

    @property
    def seen(self) -> Seen:
        """The requests so far."""
        return self._service.seen

    @property
    def memory(self) -> Memory:
        return self._service.memory

    def plan(self, fault: Fault) -> None:
        """Inject ``fault`` into the next request that matches."""
        self._service.faults.plan(fault)

    def clear_faults(self) -> None:
        """Clear all faults; hanging requests continue."""
        self._service.faults.clear()

    async def go_away(self) -> None:
        """Behave like a killed process: end every connection, refuse new ones."""
        if self._listening is not None:
            self._listening.close()
            self._listening = None
        for connection in list(self._state.connections):
            connection.transport.abort()
        self.memory.empty()

    async def come_back(self) -> None:
        """Listen on the same port again, with nothing loaded."""
        if self._listening is None:
            loop = asyncio.get_running_loop()
            listening = _bound(self._address)
            listening.listen(_BACKLOG)
            self._listening = await loop.create_server(
                lambda: HttpToolsProtocol(self._config, self._state, {}), sock=listening
            )

    async def __aenter__(self) -> Self:
        self._config.load()
        # Holds the port while the server is away. A port is refused unless somebody listens.
        self._holder = _bound(self._address)
        self._address = self._holder.getsockname()[:2]
        await self.come_back()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._coming_back is not None:
            self._coming_back.cancel()
        self.clear_faults()
        await self.go_away()
        await asyncio.gather(*self._state.tasks, return_exceptions=True)
        self._holder.close()

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send)
        served_by = self._control if exchange.path.startswith(PREFIX) else self._service
        try:
            await served_by.serve(exchange)
        except Exception:
            # Uvicorn logs nothing, because it would report every cut; a bug here must be visible.
            _log.exception("%s %s failed", exchange.method, exchange.path)
            raise

    def _cut(self, exchange: Exchange) -> None:
        for connection in self._state.connections:
            if getattr(connection, "client", None) == exchange.client:
                connection.transport.close()

    async def _go_away_for(self, fault: Fault) -> None:
        await self.go_away()
        if fault.seconds is not None:
            self._coming_back = asyncio.create_task(self._come_back_after(fault.seconds))

    async def _come_back_after(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self.come_back()


def _bound(address: tuple[str, int]) -> socket.socket:
    # With an explicit protocol: asyncio sets TCP_NODELAY only on such sockets.
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(address)
    return bound
