"""Local servers that Coatcheck calls while it is measured."""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from bench.http.servers import free_port

Handler = Callable[[str, bytes], Awaitable[bytes]]
"""Takes the called address and the body; returns the body of the answer."""


@asynccontextmanager
async def serving(addresses: Sequence[str], handler: Handler) -> AsyncIterator[int]:
    """Answers every request with 200. The port, the same on all addresses."""
    open_connections: set[asyncio.StreamWriter] = set()

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_connections.add(writer)
        address: str = writer.get_extra_info("sockname")[0]
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                body = await reader.readexactly(_content_length(head))
                answer = await handler(address, body)
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n"
                    % len(answer)
                    + answer
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the caller has disconnected
        finally:
            open_connections.discard(writer)
            writer.close()

    port = free_port()
    server = await asyncio.start_server(converse, list(addresses), port)
    try:
        yield port
    finally:
        server.close()
        for writer in list(open_connections):
            writer.close()


def _content_length(head: bytes) -> int:
    for field in head.split(b"\r\n"):
        name, _, value = field.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


class Receiver:
    """Receives webhooks and keeps them."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    async def handle(self, address: str, body: bytes) -> bytes:
        self.bodies.append(body)
        return b""


class Pages:
    """Serves pages after a delay, and records the time and host of each request."""

    def __init__(self, page: bytes, seconds: float) -> None:
        self._page = page
        self._seconds = seconds
        self._now = 0
        self.at_once_max = 0
        self.asked: dict[str, list[float]] = defaultdict(list)

    async def handle(self, address: str, body: bytes) -> bytes:
        self.asked[address].append(time.monotonic())
        self._now += 1
        self.at_once_max = max(self.at_once_max, self._now)
        try:
            await asyncio.sleep(self._seconds)
        finally:
            self._now -= 1
        return self._page

    @property
    def requests(self) -> int:
        return sum(len(times) for times in self.asked.values())

    def most_in_a_second(self) -> int:
        """The maximum in any second, wherever it begins."""
        return _most_within(sorted(at for times in self.asked.values() for at in times), 1.0)

    def most_of_a_host_in_a_second(self) -> int:
        return max(_most_within(times, 1.0) for times in self.asked.values())


def _most_within(times: Sequence[float], seconds: float) -> int:
    most = first = 0
    for last, at in enumerate(times):
        while times[first] <= at - seconds:
            first += 1
        most = max(most, last - first + 1)
    return most
