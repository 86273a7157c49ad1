"""Private folders for isolated jobs, and the removal of those whose worker died.

    root/coatcheck-<boot>.lock      locked (flock) for as long as the worker lives
    root/coatcheck-<boot>/          the worker's
    root/coatcheck-<boot>/<job>-x/  one job's, readable by nobody else

The kernel releases a lock when its process ends, however it ends. So a lock that can be taken
belongs to a dead worker, and whoever takes it (the next boot, or a sibling on the same machine)
removes the folder, then the lock file, and only then lets go. No clock and no process number is
involved.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from coatcheck.worker.strays import kill_strays

_PREFIX: Final = "coatcheck-"
"""Only names that begin so are ever touched, even if the root is a folder that others use too."""

_LOCK: Final = ".lock"
_DISK_ID: Final = ".coatcheck-disk"
_PRIVATE: Final = 0o700
_REMOVAL_TRIES: Final = 3

_logger = logging.getLogger(__name__)


class TempRoot:
    """One worker's share of the temp folder. Close it when the worker ends.

    ``boot`` names this life of the worker; it is made up unless given. Raises RuntimeError if a
    live worker already goes by that name.
    """

    def __init__(self, root: Path, boot: str | None = None) -> None:
        self._root = Path(root).absolute()
        self._root.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
        name = _PREFIX + (boot or secrets.token_hex(8))
        lock = _take_lock(self._root, name)
        while lock is None and boot is None:
            # A sweeper saw the file of our lock before we had it, and took it for a dead one's.
            name = _PREFIX + secrets.token_hex(8)
            lock = _take_lock(self._root, name)
        if lock is None:
            raise RuntimeError(f"{self._root / name} belongs to a worker that is still alive")
        self._lock: int | None = lock
        self.directory: Path = self._root / name
        """The folder that holds the folders of this worker's jobs."""
        _remove(self.directory)  # of a dead worker of the same name
        self.directory.mkdir(mode=_PRIVATE)

    def __enter__(self) -> TempRoot:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def create(self, label: str) -> Path:
        """A new empty folder for one job. ``label`` is for people who look at the disk."""
        return Path(tempfile.mkdtemp(prefix=f"{label}-", dir=self.directory))

    def remove(self, directory: Path) -> None:
        """Remove a job's folder and end the processes that still live in it. May take a while."""
        _remove(directory)

    def sweep(self) -> list[str]:
        """Remove what dead workers left under the same root; returns their names. May take a while.

        To be called at boot and from time to time, by every worker: each removes what it finds,
        and two that find the same do not disturb each other.
        """
        if self._lock is not None:
            # What cleans temp folders by age must not think that this lock was forgotten.
            os.utime(self._lock)
        own = self.directory.name
        return [name for name in _names(self._root) if name != own and _reclaim(self._root, name)]

    def close(self) -> None:
        """Remove this worker's folder and give its name back."""
        if self._lock is None:
            return
        _remove(self.directory)
        _drop_lock(self._root, self.directory.name, self._lock)
        self._lock = None


def disk_id(root: Path) -> str:
    """What tells this temp folder from any other, however alike their machines are named.

    A random word in a file in it, made by whoever comes first. Two containers may share a host's
    name and a path; they share this only if they share the folder.
    """
    file = root / _DISK_ID
    root.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
    fresh = root / f"{_DISK_ID}-{secrets.token_hex(8)}"
    fresh.write_text(secrets.token_hex(8))
    try:
        os.link(fresh, file)  # whole, or not at all: others read it at this moment
    except FileExistsError:
        pass  # somebody was first
    finally:
        fresh.unlink()
    return file.read_text()


def _names(root: Path) -> list[str]:
    """The boots that have a folder or a lock; usually both."""
    names = {
        entry.name.removesuffix(_LOCK)
        for entry in os.scandir(root)
        if entry.name.startswith(_PREFIX)
        and (entry.name.endswith(_LOCK) or entry.is_dir(follow_symlinks=False))
    }
    return sorted(names)


def _reclaim(root: Path, name: str) -> bool:
    lock = _take_lock(root, name)
    if lock is None:
        return False
    try:
        _remove(root / name)
    finally:
        _drop_lock(root, name, lock)
    return True


def _take_lock(root: Path, name: str) -> int | None:
    """The locked lock file of ``name``, or None while its worker or a sweeper holds it."""
    path = root / (name + _LOCK)
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        # A sweeper may have unlinked the file between the open and the lock: then this is the
        # lock of nothing, and the next one to come would make and lock another.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock), path.stat()):
                return lock
        os.close(lock)


def _drop_lock(root: Path, name: str, lock: int) -> None:
    (root / (name + _LOCK)).unlink(missing_ok=True)
    os.close(lock)


def _remove(directory: Path) -> None:
    """Remove a folder and all in it, whatever modes its owner set, whoever still writes to it."""
    if not os.path.lexists(directory):
        return
    kill_strays(directory)
    for _ in range(_REMOVAL_TRIES):
        try:
            shutil.rmtree(directory)
        except FileNotFoundError:
            if not os.path.lexists(directory):
                return
        except OSError as error:
            _logger.info("removing a job's folder again after %s", type(error).__name__)
            _make_removable(directory)
            kill_strays(directory)
        else:
            return
    _logger.error("the folder %s could not be removed; it is tried again later", directory)


def _make_removable(directory: Path) -> None:
    for folder in _folders(directory):
        with contextlib.suppress(FileNotFoundError):
            folder.chmod(_PRIVATE)


def _folders(directory: Path) -> Iterator[Path]:
    """The folder, then those in it: each is opened up by the caller before it is entered."""
    yield directory
    try:
        entries = list(os.scandir(directory))
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _folders(Path(entry.path))
