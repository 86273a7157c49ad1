"""A stream of any length as plain blobs, ``<key>/00000``, ``<key>/00001`` and so on.

A store's own way to take a long upload keeps what it has so far where no listing shows it. If the
process dies, those bytes stay, unseen, until the store's owner happens to have a rule for them.
Each piece is a blob of its own that is either there, and listed, or not: what a dead upload left
can be found and deleted, on every store.
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
_undoing: set[asyncio.Task[None]] = set()  # a task that nobody refers to may vanish


@dataclass(frozen=True, slots=True)
class StoredPieces:
    """What a finished upload amounts to."""

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
    """Store all of ``source`` under ``key``, a fresh one, hashing it on the way.

    One piece is gathered while the one before it is being sent: more is never in memory. If the
    source or the store fails, or the caller is cancelled, what was stored is deleted as far as the
    store lets us, and the error goes on.
    """
    upload = _Upload(container, key)
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
    """What ``store_pieces`` stored, from byte ``start`` on, in chunks of at most 1 MiB.

    Raises FileNotFoundError where a piece is gone. Pieces before ``start`` are not read.
    """
    first, begin = divmod(start, piece_bytes)
    for number in range(first, pieces):
        piece = memoryview(await container.get(_piece_key(key, number)))
        for at in range(begin, len(piece), _CHUNK_BYTES):
            yield bytes(piece[at : at + _CHUNK_BYTES])
        begin = 0


async def delete_pieces(container: BlobContainer, key: str) -> None:
    """Delete every piece under ``key``, also of an upload that never ended. A repeat is a no-op."""
    async for keys in container.keys_under(key):
        await container.delete(keys)
    await container.drop_unfinished(None, key)


def _piece_key(key: str, number: int) -> str:
    return f"{key}/{number:05}"


class _Upload:
    """The pieces of one key: at most one of them on its way."""

    def __init__(self, container: BlobContainer, key: str) -> None:
        self._container = container
        self._key = key
        self._sending: asyncio.Task[None] | None = None
        self.pieces = 0

    async def send(self, piece: bytearray) -> None:
        """Begin to send a piece, once the one before it has arrived."""
        await self.settle()
        piece_key = _piece_key(self._key, self.pieces)
        self.pieces += 1
        self._sending = asyncio.create_task(self._container.put_whole(piece_key, piece))

    async def settle(self) -> None:
        """Wait until the piece on its way has arrived; raises if it did not."""
        if self._sending is not None:
            await asyncio.shield(self._sending)
            self._sending = None

    async def undo(self) -> None:
        """Delete what was sent. A caller that is cancelled again leaves it to run in peace."""
        undoing = asyncio.create_task(self._undo())
        _undoing.add(undoing)
        undoing.add_done_callback(_undoing.discard)
        await asyncio.shield(undoing)

    async def _undo(self) -> None:
        if self._sending is not None:
            # Not cancelled: a piece that lands after its deletion would stay.
            # Its own error, if it has one, has been raised or comes too late to matter.
            await asyncio.gather(self._sending, return_exceptions=True)
        try:
            sent = [_piece_key(self._key, number) for number in range(self.pieces)]
            await self._container.delete(sent)
        except Exception as error:  # noqa: BLE001 - the upload's own error must reach the caller
            _log.warning(
                "the pieces of a failed upload were left to the sweeper: %s", type(error).__name__
            )
