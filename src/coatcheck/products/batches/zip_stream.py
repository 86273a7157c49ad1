"""A zip that is written from front to back, a block at a time, and never held whole.

Every member is Zip64 and followed by its sizes: neither has to be known before it is written.
"""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import dataclass
from datetime import datetime
from typing import IO, Final, cast

_LEVEL: Final = 1
"""Lines of JSON shrink well by the fastest level; the best takes many times as long."""
_YEAR_MIN: Final = 1980  # a zip knows no earlier one


class _Spout:
    """What a zip is written to: gathers bytes until somebody takes them. It cannot seek."""

    def __init__(self) -> None:
        self._gathered: list[bytes] = []
        self.size = 0

    def write(self, block: bytes) -> int:
        self._gathered.append(block)
        self.size += len(block)
        return len(block)

    def flush(self) -> None:
        """Nothing is held back."""

    def take(self) -> bytes:
        taken = b"".join(self._gathered)
        self._gathered, self.size = [], 0
        return taken


@dataclass(frozen=True, slots=True)
class Member:
    """A file in the zip, as it was before it was packed."""

    name: str
    lines: int
    size: int
    sha256: str


class ZipStream:
    """Members are written one after the other: ``begin``, ``write`` as often as need be, ``end``.

    Between any two calls, ``take`` gives what is to go on.
    """

    def __init__(self, written_at: datetime) -> None:
        self._spout = _Spout()
        self._zip = zipfile.ZipFile(
            cast(IO[bytes], self._spout), "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL
        )
        year, month, day, hour, minute, second, *_ = written_at.timetuple()
        self._date = (max(year, _YEAR_MIN), month, day, hour, minute, second)
        self._file: IO[bytes] | None = None
        self._name = ""
        self._lines = 0
        self._size = 0
        self._digest = hashlib.sha256()

    def begin(self, name: str) -> None:
        """Begin a member."""
        info = zipfile.ZipInfo(name, self._date)
        info.compress_type = zipfile.ZIP_DEFLATED
        info.external_attr = 0o644 << 16
        self._file = self._zip.open(info, "w", force_zip64=True)
        self._name, self._lines, self._size, self._digest = name, 0, 0, hashlib.sha256()

    def write(self, block: bytes, lines: int) -> None:
        """Add a block, which has so many lines, to the member."""
        assert self._file is not None, "a member was begun"
        self._file.write(block)
        self._digest.update(block)
        self._lines += lines
        self._size += len(block)

    def end(self) -> Member:
        """End the member. What it came to."""
        assert self._file is not None, "a member was begun"
        self._file.close()
        self._file = None
        return Member(self._name, self._lines, self._size, self._digest.hexdigest())

    def close(self) -> None:
        """Write what ends a zip. Of one that is given up half-way, nothing is to be used."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._zip.close()

    @property
    def waiting(self) -> int:
        """How many bytes are to be taken."""
        return self._spout.size

    def take(self) -> bytes:
        """What was written since the last time."""
        return self._spout.take()
