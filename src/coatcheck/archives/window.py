"""Random access to the bytes of an archive file."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from coatcheck.archives.reasons import Reason, rejected


class Window:
    """A regular file opened for reading. It has no position of its own, so threads and forked
    processes can read from it concurrently."""

    def __init__(self, source: Path | int) -> None:
        """``source`` is a path (a symbolic link as its last part is refused) or a descriptor, which
        the caller keeps."""
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
        """Exactly ``length`` bytes at ``at``. Raises ArchiveRejected if the file is shorter."""
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
