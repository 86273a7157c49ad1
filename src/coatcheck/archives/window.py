"""The bytes of an archive's file, read by place."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from coatcheck.archives.reasons import Reason, rejected


class Window:
    """A regular file, opened for reading. Has no position of its own, so that threads and forked
    processes can read from one at the same time."""

    def __init__(self, source: Path | int) -> None:
        """``source`` is a path, of which no last symbolic link is followed, or a descriptor, which
        stays the caller's."""
        self._owned = not isinstance(source, int)
        if isinstance(source, int):
            self.descriptor = source
        else:
            self.descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        about = os.fstat(self.descriptor)
        if not stat.S_ISREG(about.st_mode):
            self.close()
            raise ValueError("an archive is read from a regular file")
        self.size = about.st_size

    def read(self, at: int, length: int) -> bytes:
        """Exactly so many bytes. Raises ArchiveRejected if the file ends before."""
        data = os.pread(self.descriptor, length, at)
        while len(data) < length:
            more = os.pread(self.descriptor, length - len(data), at + len(data))
            if not more:
                raise rejected(Reason.TRUNCATED, "The archive ends before its entries do.")
            data += more
        return data

    def close(self) -> None:
        if self._owned:
            os.close(self.descriptor)
            self._owned = False
