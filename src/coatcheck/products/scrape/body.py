"""A page's body on its way into the blob store: counted, hashed, and out of memory when long."""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

from coatcheck.products.scrape import outcomes

_HELD_BYTES_MAX: Final = 256 * 1024


class PageBody:
    """A body as it comes in: in memory up to a bound, then in a file without a name.

    Such a file is gone when it is closed, and when the process is killed. A context manager.
    """

    def __init__(self, folder: Path, bytes_max: int) -> None:
        self._folder = folder
        self._bytes_max = bytes_max
        self._held = bytearray()
        self._file: BinaryIO | None = None
        self._digest = hashlib.sha256()
        self.size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    async def add(self, piece: bytes) -> None:
        """Take the next piece. Raises FailJob when there are too many bytes."""
        self.size += len(piece)
        if self.size > self._bytes_max:
            raise outcomes.too_large(self._bytes_max)
        self._digest.update(piece)
        self._held += piece
        if len(self._held) > _HELD_BYTES_MAX:
            await asyncio.to_thread(self._write)

    async def whole(self) -> bytes | BinaryIO:
        """All of it: bytes, or the file, to be read from its beginning."""
        if self._file is None:
            return bytes(self._held)
        await asyncio.to_thread(self._write)
        self._file.seek(0)
        return self._file

    def _write(self) -> None:
        if self._file is None:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 - see __exit__
        self._file.write(self._held)
        self._held.clear()
