"""One process at a time owns a data folder.

The lock is the kernel's (flock), so it ends with its holder however that ends; the file stays, as
removing it would let two holders lock two files of one name.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from coatcheck.db.embedded.errors import EmbeddedPostgresError


class Ownership:
    """A lock on a data folder, held from `take` to `give_up` or the end of the process."""

    def __init__(self, lock: Path) -> None:
        self._lock = lock
        self._descriptor: int | None = None

    def take(self) -> None:
        """Take the lock, or raise EmbeddedPostgresError naming the process that has it."""
        if self._descriptor is not None:
            return
        try:
            descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except PermissionError as error:
            raise EmbeddedPostgresError(
                f"{self._lock.parent} belongs to another user",
                "Run as the user who created it (root can, too), or name another folder.",
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(descriptor, 20).decode().strip() or "another process"
            os.close(descriptor)
            raise EmbeddedPostgresError(
                f"{self._lock.parent} is in use by process {holder}",
                "Stop it first, or name another folder with --data.",
            ) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._descriptor = descriptor

    def give_up(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
