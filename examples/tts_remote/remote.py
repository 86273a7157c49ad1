"""The text-to-speech server, which can stop and restart."""

from __future__ import annotations

import asyncio
import logging
import socket
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from examples.tts_remote.callbacks import Caller
from examples.tts_remote.control import PREFIX, Control
from examples.tts_remote.exchange import Exchange, Receive, Scope, Send
from examples.tts_remote.faults import Fault, Faults
from examples.tts_remote.job_folders import JobFolders
from examples.tts_remote.job_runner import JobRunner
from examples.tts_remote.records import Seen
from examples.tts_remote.sabotage import Saboteur
from examples.tts_remote.service import Service
from examples.tts_remote.speaking import Speaker
from examples.tts_remote.tuning import Tuning

_BACKLOG = 512
_log = logging.getLogger(__name__)


class TtsRemote:
    """A remote in this process's event loop, with its jobs in ``folder``. A context manager.

    ``bearer`` is the token that callers must send. Everything else is a field of ``Tuning`` and may
    be changed in ``remote.tuning`` while it runs.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        bearer: str | None = None,
        remember: int = 1_000,
        **tuning: Any,
    ) -> None:
        self.tuning = Tuning(**tuning)
        self.seen = Seen(remember)
        """The requests so far."""
        self.jobs = JobFolders(Path(folder))
        """The jobs, on disk."""
        self._faults = Faults()
        shared: dict[str, Any] = {
            "tuning": self.tuning,
            "faults": self._faults,
            "seen": self.seen,
        }
        self._runner = JobRunner(
            self.jobs, Speaker(self.tuning), Caller(self.jobs, self.seen), **shared
        )
        saboteur = Saboteur(self._go_away_for)
        self._service = Service(
            self.jobs, self._runner, saboteur, bearer=bearer, cut=self._cut, **shared
        )
        self._control = Control(self.jobs, go_away=self._go_away_for, **shared)
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
        )

    @property
    def url(self) -> str:
        host, port = self._address
        return f"http://{host}:{port}"

    def plan(self, fault: Fault) -> None:
        """Inject ``fault`` into the next request or job that matches."""
        self._faults.plan(fault)

    def clear_faults(self) -> None:
        """Clear all faults; hanging requests continue."""
        self._faults.clear()

    async def go_away(self) -> None:
        """Behave like a killed process: end connections, refuse new ones, stop speaking."""
        if self._listening is not None:
            self._listening.close()
            self._listening = None
        for connection in list(self._state.connections):
            connection.transport.abort()
        await self._runner.stop()

    async def come_back(self) -> None:
        """Listen on the same port again, with the jobs of the folder."""
        if self._listening is None:
            loop = asyncio.get_running_loop()
            listening = _bound(self._address)
            listening.listen(_BACKLOG)
            self._listening = await loop.create_server(
                lambda: HttpToolsProtocol(self._config, self._state, {}), sock=listening
            )
            self._runner.resume()

    async def __aenter__(self) -> Self:
        self._config.load()
        # Holds the port while the remote is away. A port is refused unless somebody listens.
        self._holder = _bound(self._address)
        try:
            self.jobs.hold()
        except BaseException:
            self._holder.close()
            raise
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
        self.jobs.let_go()

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
