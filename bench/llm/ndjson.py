"""Times the tokens of a streamed chat as they arrive, with the same code for both ways."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from bench.http.paced import OK, NotServedError


@dataclass(frozen=True)
class Heard:
    """One answer: the time of its request, the time of each token, and the text."""

    asked_at: float
    token_times: list[float]
    text: str

    @property
    def first_ms(self) -> float:
        return (self.token_times[0] - self.asked_at) * 1000

    @property
    def gaps_ms(self) -> list[float]:
        pairs = zip(self.token_times, self.token_times[1:], strict=False)
        return [(later - earlier) * 1000 for earlier, later in pairs]


class ChatConnection:
    """A kept-alive connection to a server with ``POST /api/chat``."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        headers: Mapping[str, str],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._headers = headers

    @classmethod
    async def open(cls, port: int, headers: Mapping[str, str]) -> "ChatConnection":
        return cls(*await asyncio.open_connection("127.0.0.1", port), headers)

    async def chat(self, model: str, question: str, tokens: int) -> Heard:
        """Send a chat and read the answer. It must be complete, with the expected length."""
        body = {
            "model": model,
            "messages": [{"role": "user", "content": question}],
            "options": {"num_predict": tokens},
        }
        try:
            return await self._heard(json.dumps(body).encode(), tokens)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise NotServedError(f"the connection ended: {error}") from error

    def close(self) -> None:
        self._writer.close()

    async def _heard(self, body: bytes, tokens: int) -> Heard:
        times: list[float] = []
        text: list[str] = []
        done = False
        asked_at = time.monotonic()
        self._send(body)
        await self._expect_a_stream()
        async for line in self._lines():
            now = time.monotonic()
            said: dict[str, Any] = json.loads(line)
            if "message" not in said:
                raise NotServedError(f"the stream says {line[:200]!r}")
            if said["message"]["content"]:
                times.append(now)
                text.append(said["message"]["content"])
            done = said["done"]
        if not done or len(times) != tokens:
            raise NotServedError(f"{len(times)} of {tokens} tokens came, done: {done}")
        return Heard(asked_at, times, "".join(text))

    def _send(self, body: bytes) -> None:
        lines = ["POST /api/chat HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json"]
        lines += [f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in self._headers.items()]
        self._writer.write("\r\n".join([*lines, "", ""]).encode() + body)

    async def _expect_a_stream(self) -> None:
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        if int(head.split(maxsplit=2)[1]) != OK or b"transfer-encoding: chunked" not in head:
            raise NotServedError(f"answered {head.decode()[:400]}")

    async def _lines(self) -> AsyncIterator[bytes]:
        """The lines of a chunked body, wherever the chunks end."""
        rest = b""
        while size := int(await self._reader.readline(), 16):
            rest += (await self._reader.readexactly(size + 2))[:-2]
            *lines, rest = rest.split(b"\n")
            for line in lines:
                yield line
        await self._reader.readexactly(2)
