"""Random PNG pictures, always the same for the same prompt."""

from __future__ import annotations

import struct
import zlib
from random import Random


def noise(width: int, height: int, chance: Random) -> bytes:
    """A grey picture that hardly compresses."""
    rows = b"".join(b"\0" + chance.randbytes(width) for _ in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    )
