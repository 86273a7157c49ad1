"""An upload of several pieces, that stops after the first until something has happened."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx2

from coatcheck.blobs.pieces import PIECE_BYTES
from tests.products.graphs.archives import MIB, PROGRAM, zipped

THREE_PIECES = zipped(
    {**PROGRAM, "noise.bin": hashlib.shake_256(b"noise").digest(17 * MIB)}, method=0
)
"""An archive whose third piece is not full."""

_HEAD = (
    b'--b\r\nContent-Disposition: form-data; name="file"; filename="code.zip"\r\n'
    b"Content-Type: application/zip\r\n\r\n"
)
_END = b"\r\n--b--\r\n"
_FIRST_BYTES = PIECE_BYTES + MIB
"""Enough for a piece to be on its way."""


async def post_through(
    gate: Callable[[], Awaitable[None]], http: httpx2.AsyncClient, archive: bytes, key: str
) -> httpx2.Response:
    """Hand an archive in: its first piece, and when ``gate`` has returned the rest."""

    async def content() -> AsyncIterator[bytes]:
        yield _HEAD + archive[:_FIRST_BYTES]
        await gate()
        yield archive[_FIRST_BYTES:] + _END

    return await http.post(
        "/v1/graphs/call",
        content=content(),
        headers={
            "Content-Type": "multipart/form-data; boundary=b",
            "Content-Length": str(len(_HEAD) + len(archive) + len(_END)),
            "Idempotency-Key": key,
        },
    )
