"""Uploads and downloads files piece by piece.

A URL that the server has signed may be on another server, and is all the permission it needs: no
credential is sent there.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO, Final

import httpx2

from coatcheck.client._async.exchange import AsyncExchange
from coatcheck.client.errors import ApiError, ConnectionFailed, UnexpectedAnswer
from coatcheck.client.in_threads import in_a_thread
from coatcheck.client.request_headers import Headers
from coatcheck.client.task_lines import PIECE_BYTES

SILENCE_SECONDS_MAX: Final = 120.0
"""How long a store may take to save an upload."""

_PARTIAL_CONTENT: Final = 206


class AsyncFiles:
    """Uploads and downloads files, with only a piece of them in memory."""

    def __init__(self, exchange: AsyncExchange) -> None:
        self._exchange = exchange

    async def send(
        self,
        method: str,
        url: str,
        headers: Headers,
        file: IO[bytes],
        size: int,
        *,
        before: bytes = b"",
        after: bytes = b"",
        is_signed: bool = False,
    ) -> httpx2.Response:
        """Send the first ``size`` bytes of a file; after a failure, from the beginning again.

        ``before`` and ``after`` go around them, as in a form.
        """
        length = len(before) + size + len(after)
        headers = [*headers, (b"content-length", str(length).encode())]
        failures = 0
        while True:
            try:
                async with self._exchange.open(
                    method,
                    url,
                    headers=headers,
                    content=_pieces(file, size, before, after),
                    silence=SILENCE_SECONDS_MAX,
                    is_signed=is_signed,
                ) as response:
                    await response.aread()
                    return response
            except (ApiError, ConnectionFailed) as error:
                failures += 1
                await self._exchange.wait_to_retry(error, failures)

    async def download(self, url: str, path: Path, size: int, sha256: str) -> Path:
        """Download from a signed URL to a file, which appears when it is complete and checked."""
        unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
        file = await in_a_thread(unfinished.open, "xb")
        try:
            try:
                digest = await self.fetch(url, file, size)
            finally:
                await in_a_thread(file.close)
            if digest != sha256:
                raise UnexpectedAnswer("the downloaded file does not match its checksum")
            await in_a_thread(unfinished.replace, path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        return path

    async def fetch(self, url: str, file: IO[bytes], size: int) -> str:
        """Write ``size`` bytes from a signed URL to an empty file; returns its SHA-256 in hex.

        A broken connection is restored and the download resumes.
        """
        digest, received, failures = hashlib.sha256(), 0, 0
        while received < size:
            before = received
            try:
                async with self._exchange.open(
                    "GET",
                    url,
                    headers=_from(received),
                    silence=SILENCE_SECONDS_MAX,
                    is_signed=True,
                ) as response:
                    if received and response.status_code != _PARTIAL_CONTENT:
                        await in_a_thread(file.seek, 0)
                        await in_a_thread(file.truncate)
                        digest, received = hashlib.sha256(), 0
                    async for piece in response.aiter_raw(PIECE_BYTES):
                        await in_a_thread(file.write, piece)
                        digest.update(piece)
                        received += len(piece)
            except (ApiError, ConnectionFailed) as error:
                failures = 1 if received > before else failures + 1
                await self._exchange.wait_to_retry(error, failures)
                continue
            if received != size:
                raise UnexpectedAnswer(f"received {received} bytes instead of {size}")
        return digest.hexdigest()


async def _pieces(file: IO[bytes], size: int, before: bytes, after: bytes) -> AsyncIterator[bytes]:
    await in_a_thread(file.seek, 0)
    if before:
        yield before
    while size > 0:
        piece = await in_a_thread(file.read, min(size, PIECE_BYTES))
        if not piece:
            raise ValueError("the file became shorter during the upload")
        size -= len(piece)
        yield piece
    if after:
        yield after


def _from(start: int) -> Headers:
    headers = [(b"accept-encoding", b"identity")]
    if start:
        headers.append((b"range", f"bytes={start}-".encode()))
    return headers
