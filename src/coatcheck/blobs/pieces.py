"""Stores a stream of any length as numbered blobs: ``<key>/00000``, ``<key>/00001`` and so on.

A store's own multipart upload keeps unfinished parts where no listing shows them. If the process
dies, those bytes stay there, unless the bucket's owner has a lifecycle rule for them. Each piece
here is a blob of its own that is either complete and listed, or absent. So the pieces of a dead
upload can be found and deleted, on every store.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from coatcheck.blobs.container import BlobContainer

_log = logging.getLogger(__name__)
PIECE_BYTES: Final = 8 * 1024 * 1024
_CHUNK_BYTES: Final = 1024 * 1024
_undoing: set[asyncio.Task[None]] = set()  # keeps references, so that no task is collected early


@dataclass(frozen=True, slots=True)
class StoredPieces:
    """The key, number of pieces, size and hash of a finished upload."""

    key: str
    pieces: int
    size: int
    sha256: bytes


async def store_pieces(
    container: BlobContainer,
    key: str,
    source: AsyncIterator[bytes],
    *,
    piece_bytes: int = PIECE_BYTES,
) -> StoredPieces:
    """Store all of ``source`` under a new ``key``, hashing it on the way.

    One piece is filled while the previous one is sent; no more is in memory. If the source or the
    store fails, or the caller is cancelled, the stored pieces are deleted as far as the store
    allows, and the error propagates.
    """
    upload = _MultipartUpload(container, key)
    digest = hashlib.sha256()
    size = 0
    gathered = bytearray()
    try:
        async for chunk in source:
            digest.update(chunk)
            size += len(chunk)
            rest = memoryview(chunk)
            while len(gathered) + len(rest) >= piece_bytes:
                room = piece_bytes - len(gathered)
                gathered += rest[:room]
                rest = rest[room:]
                await upload.send(gathered)
                gathered = bytearray()
            gathered += rest
        if gathered:
            await upload.send(gathered)
        await upload.settle()
    except BaseException:
        await upload.undo()
        raise
    return StoredPieces(key, upload.pieces, size, digest.digest())


async def stream_pieces(
    container: BlobContainer,
    key: str,
    pieces: int,
    start: int = 0,
    *,
    piece_bytes: int = PIECE_BYTES,
) -> AsyncIterator[bytes]:
    """Read back what ``store_pieces`` stored, from byte ``start``, in chunks of at most 1 MiB.

    Raises FileNotFoundError if a piece is missing. Pieces before ``start`` are not read.
    """
    first, begin = divmod(start, piece_bytes)
    for number in range(first, pieces):
        piece = memoryview(await container.get(_piece_key(key, number)))
        for at in range(begin, len(piece), _CHUNK_BYTES):
            yield bytes(piece[at : at + _CHUNK_BYTES])
        begin = 0


async def delete_pieces(container: BlobContainer, key: str) -> None:
    """Delete every piece under ``key``, also of an unfinished upload. Idempotent."""
    async for keys in container.keys_under(key):
        await container.delete(keys)
    await container.drop_unfinished(None, key)


def _piece_key(key: str, number: int) -> str:
    return f"{key}/{number:05}"


class _MultipartUpload:
    """The pieces of one key, with at most one being sent."""

    def __init__(self, container: BlobContainer, key: str) -> None:
        self._container = container
        self._key = key
        self._sending: asyncio.Task[None] | None = None
        self.pieces = 0

    async def send(self, piece: bytearray) -> None:
        """Start sending a piece, after the previous one has arrived."""
        await self.settle()
        piece_key = _piece_key(self._key, self.pieces)
        self.pieces += 1
        self._sending = asyncio.create_task(self._container.put_whole(piece_key, piece))

    async def settle(self) -> None:
        """Wait until the piece being sent has arrived. Raises if it failed."""
        if self._sending is not None:
            await asyncio.shield(self._sending)
            self._sending = None

    async def undo(self) -> None:
        """Delete the pieces sent so far. Continues even if the caller is cancelled again."""
        undoing = asyncio.create_task(self._undo())
        _undoing.add(undoing)
        undoing.add_done_callback(_undoing.discard)
        await asyncio.shield(undoing)

    async def _undo(self) -> None:
        if self._sending is not None:
            # Not cancelled: a piece that arrives after its deletion would stay.
            # Its own error was raised already, or no longer matters.
            await asyncio.gather(self._sending, return_exceptions=True)
        try:
            sent = [_piece_key(self._key, number) for number in range(self.pieces)]
            await self._container.delete(sent)
        except Exception as error:  # noqa: BLE001 - the upload's own error must reach the caller
            _log.warning("could not delete the pieces of a failed upload: %s", type(error).__name__)
