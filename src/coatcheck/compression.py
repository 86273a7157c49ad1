"""HTTP content codings: bounded decompression of bodies, and gzip compression of responses.

Decompression goes piece by piece, so that a small body cannot fill the memory."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Final, Protocol

ACCEPT_ENCODING: Final = "gzip, deflate"
"""The codings that this module can unpack, for requests."""

GZIP_LEVEL: Final = 1
"""For responses. Higher levels take up to three times as long to save a tenth."""

_PIECE_BYTES: Final = 256 * 1024
_FED_BYTES: Final = 16 * 1024
"""How much zlib gets at a time. At the end of each member it copies the rest of its input, and a
body may consist of nothing but members."""
_GZIP: Final = 16 + zlib.MAX_WBITS
_RAW: Final = -zlib.MAX_WBITS


class BodyCorrupt(Exception):
    """The bytes do not match their declared coding, or some are missing."""


class Unpacker(Protocol):
    """Decompresses a body."""

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Decompress the next bytes, a bounded piece at a time. Raises BodyCorrupt."""
        ...

    def end(self) -> None:
        """Mark the end of the body. Raises BodyCorrupt if it is incomplete."""
        ...


def unpacker(coding: str) -> Unpacker | None:
    """The unpacker for a ``Content-Encoding``; None if it is not supported."""
    match coding.strip().lower():
        case "" | "identity":
            return _Identity()
        case "gzip" | "x-gzip":
            return Gzip()
        case "deflate":
            return _Deflate()
        case _:
            return None


class _Identity:
    def pieces(self, data: bytes) -> Iterator[bytes]:
        yield data

    def end(self) -> None:
        pass


class _Zlib:
    """One zlib stream."""

    def __init__(self, window_bits: int) -> None:
        self._stream = zlib.decompressobj(window_bits)
        self.begun = False

    @property
    def ended(self) -> bool:
        return self._stream.eof

    @property
    def rest(self) -> bytes:
        """The input after the end of the stream."""
        return self._stream.unused_data

    def pieces(self, data: bytes) -> Iterator[bytes]:
        self.begun = True
        while True:
            try:
                piece = self._stream.decompress(data, _PIECE_BYTES)
            except zlib.error as error:
                raise BodyCorrupt from error
            data = self._stream.unconsumed_tail
            if piece:
                yield piece
            # After a full piece, zlib may hold more output although it has consumed all input.
            if not data and len(piece) < _PIECE_BYTES:
                return


class Gzip:
    """Gzip: any number of members, then possibly padding; ``strict`` allows no padding and no
    empty body."""

    def __init__(self, *, strict: bool = False) -> None:
        self._strict = strict
        self._member = _Zlib(_GZIP)
        self._over = False

    def pieces(self, data: bytes) -> Iterator[bytes]:
        for start in range(0, len(data), _FED_BYTES):
            yield from self._fed(data[start : start + _FED_BYTES])

    def _fed(self, data: bytes) -> Iterator[bytes]:
        while data and not self._over:
            if self._member.ended:
                if not data.startswith(b"\x1f"):
                    if self._strict:
                        raise BodyCorrupt
                    self._over = True
                    return
                self._member = _Zlib(_GZIP)
            yield from self._member.pieces(data)
            data = self._member.rest if self._member.ended else b""

    def end(self) -> None:
        if (self._strict or self._member.begun) and not self._member.ended:
            raise BodyCorrupt


class _Deflate:
    """The zlib format, as the standard says, or a bare deflate stream, as some servers send."""

    def __init__(self) -> None:
        self._stream: _Zlib | None = None

    def pieces(self, data: bytes) -> Iterator[bytes]:
        if not data:
            return
        if self._stream is None:
            self._stream = _Zlib(zlib.MAX_WBITS if _opens_zlib(data) else _RAW)
        if not self._stream.ended:
            yield from self._stream.pieces(data)

    def end(self) -> None:
        if self._stream is not None and not self._stream.ended:
            raise BodyCorrupt


def _opens_zlib(data: bytes) -> bool:
    """Whether these bytes could begin the zlib format: method deflate and a valid window size."""
    method, window = data[0] & 0x0F, data[0] >> 4
    return method == zlib.DEFLATED and window <= 7 and (len(data) < 2 or _is_checked(data))


def _is_checked(data: bytes) -> bool:
    return int.from_bytes(data[:2], "big") % 31 == 0


def gzipped(body: bytes) -> bytes:
    """Compress a body with gzip."""
    return zlib.compress(body, GZIP_LEVEL, _GZIP)


async def gzipped_pieces(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Compress a stream with gzip, piece by piece, holding back little. Yields to the event loop
    between pieces, even if nothing else here waits."""
    stream = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, _GZIP)
    try:
        async for piece in pieces:
            if made := stream.compress(piece):
                yield made
            await asyncio.sleep(0)
        yield stream.flush()
    finally:
        if isinstance(pieces, AsyncGenerator):
            await pieces.aclose()  # the reader may have left in the middle
