"""A client that sends what no library would: a path and headers as they are, byte for byte."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import msgspec

from tests.deployment import Deployment

GUARD_SECONDS = 30.0  # only a server that hangs reaches it


@dataclass(frozen=True)
class RawAnswer:
    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        values = [value for key, value in self.headers if key == name]
        assert len(values) <= 1, f"{name} came {len(values)} times"
        return values[0] if values else None

    def problem(self) -> Any:
        """A problem document; or JSON with an `error`, where other APIs' clients are served."""
        problem = msgspec.json.decode(self.body)
        media_type = "application/json" if "error" in problem else "application/problem+json"
        assert self.header("content-type") == media_type, self
        return problem


async def send(
    deployment: Deployment,
    method: str,
    target: str | bytes,
    *headers: bytes,
    body: bytes | None = None,
) -> RawAnswer:
    """One request on a connection of its own, with the deployment's key."""
    url = deployment.http.base_url
    path = target if isinstance(target, bytes) else target.encode()
    lines = [
        b"%b %b HTTP/1.1" % (method.encode(), path),
        b"Host: localhost",
        b"Connection: close",
        b"Authorization: Bearer " + deployment.key.encode(),
        *headers,
    ]
    if body is not None:
        lines.append(b"Content-Length: %d" % len(body))
    return await exchange(str(url.host), url.port or 0, b"\r\n".join([*lines, b"", body or b""]))


async def exchange(host: str, port: int, request: bytes) -> RawAnswer:
    async with asyncio.timeout(GUARD_SECONDS):
        reader, writer = await asyncio.open_connection(host, port)
        try:
            writer.write(request)
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        finally:
            writer.close()
    first, *lines = head.decode("latin-1").split("\r\n")
    fields = [line.split(": ", 1) for line in lines]
    return RawAnswer(
        int(first.split(" ")[1]), [(name.lower(), value) for name, value in fields], body
    )
