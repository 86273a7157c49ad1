"""A server that answers each request as a script says: refusals, cuts, streams that break off.

It speaks HTTP/1.1 on a real socket, so that what a client does about a broken connection is done
about a broken connection. Its answers are those of the contract; what is not scripted is refused.

A step of a script is an object:

    status     of the answer; 200 unless given
    headers    of the answer
    json       the body, as JSON; a problem document if ``problem`` is given instead
    text       the body, as text
    events     a stream of Server-Sent Events: pieces to send, without a length
    then       "close" (the answer ends), "cut" (the connection is reset before the answer's end)
    hold       seconds for which the answer is held, as a long-poll's is
    drop       true: the connection is reset without an answer
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from tests.connections import break_off

RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass(frozen=True)
class Asked:
    """A request that came."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]


class ScriptedServer:
    """Answers the n-th request with the n-th step. A context manager."""

    def __init__(self, script: Sequence[dict[str, Any]]) -> None:
        self._script = list(script)
        self.asked: list[Asked] = []

    async def __aenter__(self) -> Self:
        self._served: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        for connection in self._served:
            break_off(connection)
        await asyncio.gather(*self._served.values())
        if error is None:
            assert self._script == [], f"never asked for: {self._script}"

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._served[writer] = asyncio.create_task(self._serve(reader, writer))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (asked := await self._read(reader)) is not None:
                self.asked.append(asked)
                step = self._script.pop(0) if self._script else _NOT_SCRIPTED
                if not await self._answer(step, writer):
                    return
        except ConnectionError:
            pass  # the client went first, as clients may
        finally:
            writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> Asked | None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("utf-8")
        except asyncio.IncompleteReadError:
            return None
        first, *lines = head.split("\r\n")[:-2]
        method, target, _ = first.split(" ")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        return Asked(method, target, headers, body)

    async def _answer(self, step: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
        """Whether the connection can be used again."""
        if step.get("drop"):
            _reset(writer)
            return False
        await asyncio.sleep(step.get("hold", 0))
        content, headers = _content(step)
        ends_with_connection = "events" in step or "then" in step
        if ends_with_connection:
            headers["Connection"] = "close"
            if step.get("then") == "cut":
                headers["Transfer-Encoding"] = "chunked"
        else:
            headers["Content-Length"] = str(len(content))
        lines = [f"HTTP/1.1 {step.get('status', 200)} Scripted"]
        lines += [f"{name}: {value}" for name, value in (headers | step.get("headers", {})).items()]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        if "Transfer-Encoding" in headers:
            writer.write(b"%x\r\n%b\r\n" % (len(content), content))
            await writer.drain()
            writer.write_eof()  # in the middle of the body, as far as the client can tell
        else:
            writer.write(content)
            await writer.drain()
        return not ends_with_connection


_NOT_SCRIPTED = {"status": 418, "problem": {"code": "not_scripted", "message": "not in the script"}}


def _content(step: dict[str, Any]) -> tuple[bytes, dict[str, str]]:
    if "problem" in step:
        problem = {"status": step["status"]} | step["problem"]
        return json.dumps(problem).encode(), {"Content-Type": "application/problem+json"}
    if "events" in step:
        return "".join(step["events"]).encode(), {"Content-Type": "text/event-stream"}
    if "text" in step:
        return step["text"].encode(), {"Content-Type": "text/html"}
    return json.dumps(step.get("json", {})).encode(), {"Content-Type": "application/json"}


def _reset(writer: asyncio.StreamWriter) -> None:
    connection: socket.socket = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    writer.transport.abort()
