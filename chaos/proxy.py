"""A TCP proxy in front of PostgreSQL or a server that fails as networks do.

Without a fault it forwards everything. It can cut connections (with a reset, or with an orderly
end), delay data, leave connections half open (no data passes, and neither side notices), and lose
an answer: the request is forwarded and done, and the connection breaks before the answer arrives.
Clients handle that last fault worst: the work is committed, and the caller does not know it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, cast

_BACKLOG: Final = 256
_RESET: Final = struct.pack("ii", 1, 0)  # SO_LINGER: a close sends a reset at once
_WRITE_BUFFER_BYTES: Final = 256 * 1024


class Talk(Protocol):
    """Parses the traffic of one connection, to recognise answers to changes."""

    def asked(self, piece: bytes) -> None: ...

    def answered(self, piece: bytes) -> str | None: ...


@dataclass(frozen=True)
class Destination:
    """The destination of a proxy: a Unix socket, or a local port."""

    path: str | None = None
    port: int = 0


class Proxy:
    """Listens on its own port, and forwards to ``destination``."""

    def __init__(self, destination: Destination, talk: Callable[[], Talk]) -> None:
        self.port = 0
        self.destination = destination
        self.new_talk = talk
        self.delay_seconds = 0.0
        self.links: set[_Link] = set()
        self._server: asyncio.Server | None = None
        self._swallows_new = False
        self._losses: list[_Loss] = []

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Link(self).client, "127.0.0.1", self.port, backlog=_BACKLOG
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for link in [*self.links]:
            link.cut(reset=False)
        self._server = None

    # Faults

    def cut(self, rng: random.Random, share: float = 1.0, *, reset: bool = True) -> int:
        """Cut about this share of the connections, at least one if any. Returns the number."""
        links = [link for link in self.links if not link.frozen]
        chosen = [link for link in links if rng.random() < share] or links[:1]
        for link in chosen:
            link.cut(reset=reset)
        return len(chosen)

    def freeze(self, *, new_too: bool) -> int:
        """Make every connection half open, new ones too if asked. Returns the number."""
        self._swallows_new = new_too
        frozen = [link for link in self.links if not link.frozen]
        for link in frozen:
            link.frozen = True
        return len(frozen)

    def drop_frozen(self) -> int:
        """Close the half-open connections on both sides. Returns the number."""
        self._swallows_new = False
        frozen = [link for link in self.links if link.frozen]
        for link in frozen:
            link.cut(reset=True)
        return len(frozen)

    async def lose_answers(self, count: int, seconds: float) -> list[str]:
        """Lose the answers to the next ``count`` requests that change something.

        Returns these requests, after ``seconds`` at the latest: without such requests, nothing can
        be lost.
        """
        loss = _Loss(count)
        self._losses.append(loss)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await loss.over.wait()
        finally:
            self._losses.remove(loss)
        return loss.lost

    def heal(self) -> None:
        """Forward everything again."""
        self.delay_seconds = 0.0
        for loss in self._losses:
            loss.over.set()
        self.drop_frozen()

    # For the links

    @property
    def swallows_new(self) -> bool:
        return self._swallows_new

    def loses(self, asked: str) -> bool:
        """Whether to lose the answer to this; if so, it counts as lost."""
        for loss in self._losses:
            if not loss.over.is_set():
                loss.add(asked)
                return True
        return False


class _Loss:
    """The number of answers to lose, and those lost."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.lost: list[str] = []
        self.over = asyncio.Event()

    def add(self, asked: str) -> None:
        self.lost.append(asked)
        if len(self.lost) >= self._count:
            self.over.set()


class _Link:
    """A client's connection, and the proxy's connection for it."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.frozen = False
        self.client = _End(self)
        self.server = _End(self)
        self._talk = proxy.new_talk()
        self._connecting: asyncio.Task[None] | None = None

    def began(self, end: _End) -> None:
        if end is not self.client:
            return
        self.proxy.links.add(self)
        if self.proxy.swallows_new:
            self.frozen = True
            return
        self._connecting = asyncio.create_task(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        where = self.proxy.destination
        try:
            if where.path is not None:
                await loop.create_unix_connection(lambda: self.server, where.path)
            else:
                await loop.create_connection(lambda: self.server, "127.0.0.1", where.port)
        except OSError:  # no destination: to the client, its connection breaks
            self.cut(reset=True)
            return
        if self.client.is_lost and not self.frozen:
            self.server.abort(reset=False)

    def came(self, source: _End, piece: bytes) -> None:
        if self.frozen:
            return
        if source is self.client:
            self._talk.asked(piece)
            self.server.send(piece)
            return
        done = self._talk.answered(piece)
        if done is not None and self.proxy.loses(done):
            self.cut(reset=True)
            return
        self.client.send(piece)

    def ended(self, source: _End) -> None:
        if self.frozen:  # without notice to the other side
            return
        other = self.server if source is self.client else self.client
        other.end()
        if source.is_lost and (other.is_lost or not other.has_begun):
            self.proxy.links.discard(self)

    def cut(self, *, reset: bool) -> None:
        self.frozen = False
        self.proxy.links.discard(self)
        if self._connecting is not None and self._connecting is not asyncio.current_task():
            self._connecting.cancel()
        for end in (self.client, self.server):
            end.abort(reset=reset)

    def other_of(self, end: _End) -> _End:
        return self.server if end is self.client else self.client


class _End(asyncio.Protocol):
    """One side of a link: forwards data to the other side, with the proxy's delay."""

    def __init__(self, link: _Link) -> None:
        self._link = link
        self._transport: asyncio.Transport | None = None
        self._early: list[bytes] = []
        """Data received before it was connected."""
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._ends_after_waiting = False
        self.is_lost = False

    @property
    def has_begun(self) -> bool:
        return self._transport is not None

    # Callbacks of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not asserted: uvloop's transports are not instances of asyncio.Transport.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(_WRITE_BUFFER_BYTES)
        early, self._early = self._early, []
        for piece in early:
            self.send(piece)
        self._link.began(self)

    def data_received(self, data: bytes) -> None:
        self._link.came(self, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._link.ended(self)

    def pause_writing(self) -> None:
        self._link.other_of(self).pause_reading()

    def resume_writing(self) -> None:
        self._link.other_of(self).resume_reading()

    # Called by the link

    def send(self, piece: bytes) -> None:
        if self._transport is None:
            self._early.append(piece)
            return
        delay = self._link.proxy.delay_seconds
        if not delay and not self._waiting:
            self._write(piece)
            return
        loop = asyncio.get_running_loop()
        self._waiting.append((loop.time() + delay, piece))
        if self._timer is None:
            self._timer = loop.call_at(self._waiting[0][0], self._send_due)

    def end(self) -> None:
        """Close in order, after all pending data."""
        if self._waiting:
            self._ends_after_waiting = True
        elif self._transport is not None and not self.is_lost:
            self._transport.close()

    def abort(self, *, reset: bool) -> None:
        if self._transport is None or self.is_lost:
            return
        if not reset:
            self._transport.close()
            return
        connection = self._transport.get_extra_info("socket")
        if connection is not None and connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._transport.abort()

    def pause_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _send_due(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        while self._waiting and self._waiting[0][0] <= now:
            self._write(self._waiting.popleft()[1])
        if self._waiting:
            self._timer = loop.call_at(self._waiting[0][0], self._send_due)
        elif self._ends_after_waiting:
            self.end()

    def _write(self, piece: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(piece)
