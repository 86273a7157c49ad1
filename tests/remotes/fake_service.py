"""The common half of the fakes of HTTP services: a socket, work that a test ends, and faults.

Each service's fake adds its routes, field names and words, as its public documentation has them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

from coatcheck.remotes import Remote, Remotes
from tests.egress.upstream_server import Request, UpstreamServer, head, upstream_server
from tests.remotes.faults import Cut, Fault, Garbage, Hang, Status

TOKEN_ID = "canary-token-id"
SECRETS = {"SERVICE_KEY": "canary-secret-of-the-service", "TOKEN_ID": TOKEN_ID}
PIECE = b"\x5a" * 65_536


@dataclass
class Work:
    """One piece of work at a service, as a test moves it."""

    id: str
    body: Any
    callback_url: str | None = None
    state: str = "running"  # running, completed, failed, cancelled
    error: str = ""
    content: bytes = b""
    media_type: str = "audio/wav"
    streamed_bytes: int = 0
    """If set: the content is that many bytes, made as they are sent."""
    cut_after: int | None = None
    """If set: the connection breaks after so many bytes of the content."""


@dataclass
class Call:
    """A request, taken apart."""

    request: Request
    method: str
    path: str
    query: dict[str, str]

    def json(self) -> Any:
        return json.loads(self.request.body)


class FakeService:
    """A service whose work a test ends. ``secret`` is what it lets in."""

    secret = SECRETS["SERVICE_KEY"]
    authorization = f"Bearer {secret}"
    by_operator = False
    """Whether only the operator may define such targets."""

    def __init__(self) -> None:
        self.works: dict[str, Work] = {}
        self.faults: list[Fault] = []
        self.calls: list[Call] = []
        self.cancelled: list[str] = []
        self.server: UpstreamServer
        self.sent_bytes = 0

    @classmethod
    @asynccontextmanager
    async def running(cls) -> AsyncIterator[Self]:
        fake = cls()
        async with upstream_server(fake.answer_request) as fake.server:
            yield fake

    # What tests do

    def definition(self) -> dict[str, Any]:
        raise NotImplementedError

    def opened(self, remotes: Remotes, definition: dict[str, Any] | None = None) -> Remote:
        """The adapter of this service, with its secrets."""
        return remotes.open(
            definition or self.definition(), secret=SECRETS.get, by_operator=self.by_operator
        )

    def unreachable_definition(self, dead_port: int) -> dict[str, Any]:
        """The same, where nobody listens."""
        definition = self.definition()
        url = definition["url"].replace(f":{self.server.port}", f":{dead_port}")
        return definition | {"url": url}

    def complete(self, remote_id: str, content: bytes, media_type: str = "audio/wav") -> None:
        work = self.works[remote_id]
        work.state, work.content, work.media_type = "completed", content, media_type

    def complete_streaming(self, remote_id: str, size: int) -> None:
        self.works[remote_id].state = "completed"
        self.works[remote_id].streamed_bytes = size

    def fail(self, remote_id: str, error: str) -> None:
        self.works[remote_id].state, self.works[remote_id].error = "failed", error

    def forget(self, remote_id: str) -> None:
        del self.works[remote_id]

    def sent_input(self, remote_id: str) -> Any:
        """What the function over there was given."""
        return self.works[remote_id].body

    # What a service adds

    async def respond(self, call: Call, writer: asyncio.StreamWriter) -> None:
        raise NotImplementedError

    # What they share

    async def answer_request(self, request: Request, writer: asyncio.StreamWriter) -> None:
        parts = urlsplit(request.target)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        call = Call(request, request.method, unquote(parts.path), query)
        self.calls.append(call)
        if call.path.startswith("/files/"):
            await self.send_file(self.works[call.path.removeprefix("/files/")], writer)
            return
        if self.faults:
            await self._go_wrong(self.faults.pop(0), request, writer)
            return
        if request.header("authorization") != self.authorization:
            self.answer(writer, "401 Unauthorized", {"detail": "who are you?"})
            return
        await self.respond(call, writer)

    async def _go_wrong(self, fault: Fault, request: Request, writer: asyncio.StreamWriter) -> None:
        match fault:
            case Garbage(body):
                _send(writer, "200 OK", body, "application/json")
            case Hang():
                await asyncio.Event().wait()
            case Cut():
                writer.close()
                raise ConnectionError
            case Status(code, retry_after):
                extra = () if retry_after is None else (("Retry-After", retry_after),)
                text = f"no, {request.header('authorization')} at {request.target}"
                text += f" with {request.body.decode()}\n\x00" + "z" * 5_000
                body = json.dumps({"detail": text}).encode()
                _send(writer, f"{code} Because", body, "application/json", extra)

    def answer(self, writer: asyncio.StreamWriter, status: str, document: Any) -> None:
        _send(writer, status, json.dumps(document).encode(), "application/json")

    def file_url(self, work: Work) -> str:
        return self.server.url(f"/files/{work.id}")

    async def send_file(self, work: Work, writer: asyncio.StreamWriter) -> None:
        size = work.streamed_bytes or len(work.content)
        writer.write(
            head(
                "200 OK",
                (("Content-Type", work.media_type), ("Content-Length", str(size))),
            )
        )
        if work.cut_after is not None:
            writer.write(work.content[: work.cut_after])
            await writer.drain()
            writer.close()
            raise ConnectionError
        if not work.streamed_bytes:
            writer.write(work.content)
            return
        while self.sent_bytes < size:
            writer.write(PIECE[: size - self.sent_bytes])
            self.sent_bytes += min(len(PIECE), size - self.sent_bytes)
            await writer.drain()


def _send(
    writer: asyncio.StreamWriter,
    status: str,
    body: bytes,
    media_type: str,
    extra: tuple[tuple[str, str], ...] = (),
) -> None:
    headers = (("Content-Type", media_type), ("Content-Length", str(len(body))), *extra)
    writer.write(head(status, headers) + body)
