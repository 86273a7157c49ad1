"""A small disk, and a file that fills it."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_CHUNK_BYTES = 256 * 1024


class SmallDisk:
    """A file system in memory with a fixed size."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self, *, leaving: int = 0) -> None:
        """Leave only this many free bytes."""
        with self._ballast.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"\0" * _CHUNK_BYTES)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
            size = file.tell()
            file.truncate(max(0, size - leaving))

    def make_room(self) -> None:
        """Remove the file that fills the disk."""
        self._ballast.unlink(missing_ok=True)


@contextmanager
def small_disk(folder: Path, mebibytes: int) -> Iterator[SmallDisk]:
    """Mount a file system of this size at a new ``folder``; it is removed afterwards."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small file system")
    folder.mkdir(parents=True)
    options = f"size={mebibytes}m,mode=0755"
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "coatcheck-small-disk", folder],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip(f"no file system may be mounted here: {mounted.stderr.strip()}")
    try:
        yield SmallDisk(folder)
    finally:
        # Lazily: a process of a failed test may still use it.
        subprocess.run(["umount", "--lazy", folder], check=True)
