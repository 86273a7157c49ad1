"""A server that takes uploads, and forms to send to it."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

from coatcheck.http.bodies import file_part
from coatcheck.http.dispatch import Dispatcher
from coatcheck.http.protocol import Bounds
from coatcheck.http.request import Request
from coatcheck.http.response import RawHeaders, Response, json_response
from coatcheck.http.routing import ResponseSpec, Route
from coatcheck.http.server import HttpServer, listen
from tests.http.limits.wire import GUARD_SECONDS, RouteServer

FILE_BYTES_MAX = 32 * 1024 * 1024
BOUNDARY = b"----a boundary 7f31c5"
DISPOSITION = b'Content-Disposition: form-data; name="file"; filename="code.zip"\r\n'


def form(
    content: bytes, *, boundary: bytes = BOUNDARY, headers: bytes = DISPOSITION, after: bytes = b""
) -> bytes:
    """One part, and what comes after the form."""
    return b"--%s\r\n%s\r\n%s\r\n--%s--\r\n%s" % (boundary, headers, content, boundary, after)


def head(*, length: int | None, boundary: bytes = BOUNDARY, more: bytes = b"") -> bytes:
    """The request's head; chunked, if the length is not known."""
    size = b"transfer-encoding: chunked" if length is None else b"content-length: %d" % length
    return (
        b"POST /upload HTTP/1.1\r\nhost: a\r\n"
        b'content-type: multipart/form-data; boundary="%s"\r\n%s\r\n%s\r\n' % (boundary, size, more)
    )


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


LAST_CHUNK = b"0\r\n\r\n"


def taken(content: bytes) -> dict[str, object]:
    """What the server says of a file that it took."""
    return {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}


@asynccontextmanager
async def upload_site(
    *,
    bytes_max: int = FILE_BYTES_MAX,
    bounds: Bounds | None = None,
    look: Callable[[], None] = lambda: None,
) -> AsyncIterator[RouteServer]:
    """Takes a part ``file`` at /upload, keeps nothing of it, and looks at every piece's arrival."""

    async def upload(request: Request) -> Response:
        digest, size = hashlib.sha256(), 0
        async for piece in file_part(request, "file", bytes_max):
            digest.update(piece)
            size += len(piece)
            look()
        return json_response({"size": size, "sha256": digest.hexdigest()})

    served = RouteServer()
    answers = [ResponseSpec(HTTPStatus.OK, "done")]
    routes = [
        Route(["POST"], "/upload", "upload", "Upload.", upload, answers, "test"),
        Route(["GET"], "/here", "here", "Here.", served.here, answers, "test"),
    ]
    server = HttpServer(
        Dispatcher(routes, _admit),
        drain_seconds=GUARD_SECONDS,
        draining=served.draining,
        bounds=bounds,
    )
    listening = listen("127.0.0.1", 0)
    served.port = listening.getsockname()[1]
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        yield served
    finally:
        server.stop()
        await serving


async def _admit(request: Request, route: Route) -> RawHeaders:
    raise AssertionError("every route is open")
