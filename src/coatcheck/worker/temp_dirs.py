"""Private folders for isolated jobs, and the removal of those of dead workers.

    root/coatcheck-<boot>.lock      locked (flock) for as long as the worker lives
    root/coatcheck-<boot>/          the worker's folder
    root/coatcheck-<boot>/<job>-x/  one job's folder, readable by nobody else

The kernel releases a lock when its process ends, however it ends. So a lock that can be acquired
belongs to a dead worker, and whoever acquires it (the next boot, or a sibling on the same machine)
removes the folder, then the lock file, and only then releases it. No clock and no PID is involved.

A job's process runs as the worker's user and may do anything to its folder, even while it is being
removed: replace it by a link, move it, remove all permissions. So nothing here relies on a path.
Every folder is opened relative to its parent without following links, and its contents are removed
relative to that handle: a link is unlinked, whatever it points to.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import secrets
import stat
import sys
import threading
from pathlib import Path
from typing import Final

from coatcheck.processes import kill_strays

_PREFIX: Final = "coatcheck-"
"""Only names with this prefix are ever touched, even if others use the root folder too."""

_LOCK: Final = ".lock"
_DISK_ID: Final = ".coatcheck-disk"
_PRIVATE: Final = 0o700
_REMOVAL_TRIES: Final = 3
_OPEN_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NOT_EMPTY: Final = frozenset({errno.ENOTEMPTY, errno.EEXIST})

_logger = logging.getLogger(__name__)


class TempRoot:
    """One worker's part of the temp folder. Close it when the worker ends.

    ``boot`` names this run of the worker; it is random unless given. Raises RuntimeError if a live
    worker already has that name.
    """

    def __init__(self, root: Path, boot: str | None = None) -> None:
        self._root = Path(root).absolute()
        self._root.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
        name = _PREFIX + (boot or secrets.token_hex(8))
        lock = _take_lock(self._root, name)
        while lock is None and boot is None:
            # A sweeper saw our lock file before we had locked it, and took it for a dead one's.
            name = _PREFIX + secrets.token_hex(8)
            lock = _take_lock(self._root, name)
        if lock is None:
            raise RuntimeError(f"{self._root / name} belongs to a worker that is still alive")
        self._lock: int | None = lock
        self.directory: Path = self._root / name
        """The parent of this worker's job folders."""
        self._root_handle = os.open(self._root, _OPEN_FOLDER)
        _remove(self._root_handle, self.directory)  # from a dead worker of the same name
        os.mkdir(name, _PRIVATE, dir_fd=self._root_handle)
        self._handle = os.open(name, _OPEN_FOLDER | os.O_NOFOLLOW, dir_fd=self._root_handle)
        self._guard = threading.Lock()
        self._expected: set[str] = set()
        """Names in the folder that are in use: by a job, or being removed right now."""

    def __enter__(self) -> TempRoot:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def create(self, label: str) -> Path:
        """Create an empty folder for one job. ``label`` is for people who look at the disk."""
        name = f"{label}-{secrets.token_hex(8)}"
        with self._guard:
            os.mkdir(name, _PRIVATE, dir_fd=self._handle)
            self._expected.add(name)
        return self.directory / name

    def remove(self, directory: Path) -> None:
        """Remove a job's folder and kill the processes still in it. May take a while.

        Also removes everything else in the worker's folder that belongs to no job: a handler may
        have renamed its folder.
        """
        kill_strays(directory)
        with self._guard:
            names = [name for name in _entries(self._handle) if name not in self._expected]
            names.append(directory.name)
            self._expected.update(names)
        try:
            for name in names:
                _remove(self._handle, self.directory / name)
        finally:
            with self._guard:
                self._expected.difference_update(names)

    def sweep(self) -> list[str]:
        """Remove what dead workers left under the same root; returns their names. May take a while.

        Every worker calls this at boot and periodically. Two workers that find the same leftovers
        do not disturb each other.
        """
        if self._lock is not None:
            # Tools that clean temp folders by age must not consider this lock forgotten.
            os.utime(self._lock)
        own = self.directory.name
        root = os.dup(self._root_handle)  # `close` may be called meanwhile
        try:
            names = [name for name in _names(root) if name != own]
            return [name for name in names if _reclaim(self._root, root, name)]
        finally:
            os.close(root)

    def close(self) -> None:
        """Remove this worker's folder and release its name."""
        if self._lock is None:
            return
        _remove(self._root_handle, self.directory)
        os.close(self._handle)
        os.close(self._root_handle)
        _drop_lock(self._root, self.directory.name, self._lock)
        self._lock = None


def disk_id(root: Path) -> str:
    """An id that distinguishes this temp folder from any other, even on machines of one name.

    It is a random word in a file inside, written by the first caller. Two containers may share a
    host name and a path; they share this only if they share the folder.
    """
    file = root / _DISK_ID
    root.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
    fresh = root / f"{_DISK_ID}-{secrets.token_hex(8)}"
    fresh.write_text(secrets.token_hex(8))
    try:
        os.link(fresh, file)  # atomic: others may read it right now
    except FileExistsError:
        pass  # another process was first
    finally:
        fresh.unlink()
    return file.read_text()


def _names(root: int) -> list[str]:
    """The boots that have a folder or a lock; usually both."""
    names = {
        entry.name.removesuffix(_LOCK)
        for entry in os.scandir(root)
        if entry.name.startswith(_PREFIX)
        and (entry.name.endswith(_LOCK) or entry.is_dir(follow_symlinks=False))
    }
    return sorted(names)


def _reclaim(root: Path, handle: int, name: str) -> bool:
    try:
        lock = _take_lock(root, name)
    except OSError as error:  # something other than a lock is there; sweep the others
        _logger.error("the lock of %s could not be opened: %s", root / name, error.strerror)
        return False
    if lock is None:
        return False
    try:
        _remove(handle, root / name)
    finally:
        _drop_lock(root, name, lock)
    return True


def _take_lock(root: Path, name: str) -> int | None:
    """Lock the lock file of ``name``; None while its worker or a sweeper holds it."""
    path = root / (name + _LOCK)
    while True:
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            path.unlink(missing_ok=True)  # a link is never a valid lock
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        # A sweeper may have unlinked the file between the open and the lock: then this lock
        # protects nothing, and the next process would create and lock another file.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock), path.stat()):
                return lock
        os.close(lock)


def _drop_lock(root: Path, name: str, lock: int) -> None:
    (root / (name + _LOCK)).unlink(missing_ok=True)
    os.close(lock)


def open_within(folder: int, path: str) -> int:
    """Open a regular file for reading, at a relative path in an open folder, without links.

    Raises OSError: PermissionError if it is not a regular file or not in the folder.
    """
    *folders, name = path.split("/")
    if not name or any(part in ("", ".", "..") for part in (*folders, name)):
        raise PermissionError(errno.EPERM, "not a path within the folder")
    opened: list[int] = []
    try:
        for part in folders:
            opened.append(
                os.open(part, _OPEN_FOLDER | os.O_NOFOLLOW, dir_fd=(opened or [folder])[-1])
            )
        # Non-blocking: opening a pipe would wait for a writer.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        file = os.open(name, flags, dir_fd=(opened or [folder])[-1])
    finally:
        for each in opened:
            os.close(each)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise PermissionError(errno.EPERM, "not a regular file")
    return file


def _remove(parent: int, path: Path) -> None:
    """Remove whatever is at ``path``, with any permissions, even while others write to it.
    ``parent`` is the open folder that contains it; the path is only for logs and processes."""
    for _ in range(_REMOVAL_TRIES):
        if not _exists(parent, path.name):
            return
        kill_strays(path)
        try:
            if not _removed(parent, path.name):
                folder = _open_folder(parent, path.name)
                try:
                    _empty(folder)
                finally:
                    os.close(folder)
                os.rmdir(path.name, dir_fd=parent)
        except FileNotFoundError:
            pass  # another process removed it
        except OSError as error:
            _logger.info("removing a job's folder again after %s", type(error).__name__)
    if _exists(parent, path.name):
        _logger.error("the folder %s could not be removed; retrying later", path)


def _exists(parent: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _empty(top: int) -> None:
    """Remove the contents of a folder of any depth, with two open folders at a time.

    A non-empty folder is moved up into ``top`` and emptied there. A mount point cannot be moved or
    removed: it is never entered.
    """
    names = _left_in(top)
    while names:
        name = names.pop()
        try:
            folder = _open_folder(top, name)
        except OSError as error:  # something replaced it: the next try sees what it is
            _logger.info("a job's folder could not be opened: %s", error.strerror)
            continue
        try:
            names += _moved_up(folder, _left_in(folder), top)
        finally:
            os.close(folder)
        _removed(top, name)


def _entries(folder: int) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries]


def _left_in(folder: int) -> list[str]:
    """Remove what can be removed at once; returns the rest, which are non-empty folders."""
    return [name for name in _entries(folder) if not _removed(folder, name)]


def _moved_up(folder: int, names: list[str], top: int) -> list[str]:
    moved = []
    for name in names:
        fresh = f"{_PREFIX}{secrets.token_hex(8)}"
        try:
            os.close(_open_folder(folder, name))  # ensures the permission to move it
            os.rename(name, fresh, src_dir_fd=folder, dst_dir_fd=top)
        except OSError as error:
            _logger.info("a job's folder could not be moved: %s", error.strerror)
        else:
            moved.append(fresh)
    return moved


def _removed(parent: int, name: str) -> bool:
    """Remove a file, a link or an empty folder. False for a folder that must be emptied first.

    Anything else is left: then its folder stays non-empty, which is an error there.
    """
    try:
        # First as a folder: this detects a mount point.
        os.rmdir(name, dir_fd=parent)
    except FileNotFoundError:
        pass
    except NotADirectoryError:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=parent)
    except OSError as error:
        if error.errno in _NOT_EMPTY:
            return False
        _logger.info("a job's file could not be removed: %s", error.strerror)
    return True


def _open_folder(parent: int, name: str) -> int:
    """Open a folder with full permissions for its owner, whatever they were."""
    flags = _OPEN_FOLDER | os.O_NOFOLLOW
    try:
        folder = os.open(name, flags, dir_fd=parent)
    except PermissionError:
        _make_accessible(parent, name)
        folder = os.open(name, flags, dir_fd=parent)
    try:
        if os.fstat(folder).st_mode & _PRIVATE != _PRIVATE:
            os.fchmod(folder, _PRIVATE)
    except OSError:
        os.close(folder)
        raise
    return folder


if sys.platform == "linux":

    def _make_accessible(parent: int, name: str) -> None:
        """Give the owner full permissions on a folder. An O_PATH handle, which needs no permission,
        identifies it, so the mode of nothing else can be changed."""
        flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        folder = os.open(name, flags, dir_fd=parent)
        try:
            Path(f"/proc/self/fd/{folder}").chmod(_PRIVATE)
        finally:
            os.close(folder)

else:

    def _make_accessible(parent: int, name: str) -> None:
        """Give the owner full permissions on a folder; never follows a link."""
        os.chmod(name, _PRIVATE, dir_fd=parent, follow_symlinks=False)
