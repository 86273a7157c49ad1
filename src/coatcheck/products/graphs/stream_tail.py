"""The end of a stream, kept while the stream passes by."""

from __future__ import annotations

from collections.abc import AsyncIterator


class Tail:
    """Passes pieces on and keeps their last ``bytes_max`` bytes.

    A zip has its directory at its end: with it, an archive is judged as soon as its last byte has
    come, without reading any of it again.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        # One run of bytes: a caller may send them one by one, and each as an object of its own
        # would need many times the memory.
        self._kept = bytearray()
        self.size = 0
        """How many bytes have passed."""

    async def watch(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for piece in pieces:
            self.size += len(piece)
            self._keep(piece)
            yield piece

    @property
    def kept(self) -> bytes:
        return bytes(self._kept[-self._bytes_max :])

    def _keep(self, piece: bytes) -> None:
        self._kept += piece
        if len(self._kept) >= 2 * self._bytes_max:
            del self._kept[: -self._bytes_max]
