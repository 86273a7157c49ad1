"""Private folders for isolated jobs, and the removal of those whose worker died.

    root/coatcheck-<boot>.lock      locked (flock) for as long as the worker lives
    root/coatcheck-<boot>/          the worker's
    root/coatcheck-<boot>/<job>-x/  one job's, readable by nobody else

The kernel releases a lock when its process ends, however it ends. So a lock that can be taken
belongs to a dead worker, and whoever takes it (the next boot, or a sibling on the same machine)
removes the folder, then the lock file, and only then lets go. No clock and no process number is
involved.

A job's process runs as the worker's user and may do what it likes to its folder, also while it is
being removed: put a link in its place, move it, take all rights from it. So nothing here goes by a
path. Every folder is opened without following a link, relative to the one that holds it, and what
is in it is removed relative to that handle: a link is unlinked, whatever it points to.
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

from coatcheck.processes.strays import kill_strays

_PREFIX: Final = "coatcheck-"
"""Only names that begin so are ever touched, even if the root is a folder that others use too."""

_LOCK: Final = ".lock"
_DISK_ID: Final = ".coatcheck-disk"
_PRIVATE: Final = 0o700
_REMOVAL_TRIES: Final = 3
_OPEN_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NOT_EMPTY: Final = frozenset({errno.ENOTEMPTY, errno.EEXIST})

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
        self._root_handle = os.open(self._root, _OPEN_FOLDER)
        _remove(self._root_handle, self.directory)  # of a dead worker of the same name
        os.mkdir(name, _PRIVATE, dir_fd=self._root_handle)
        self._handle = os.open(name, _OPEN_FOLDER | os.O_NOFOLLOW, dir_fd=self._root_handle)
        self._guard = threading.Lock()
        self._expected: set[str] = set()
        """What is in the folder for a reason: a job's, or being removed at this moment."""

    def __enter__(self) -> TempRoot:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def create(self, label: str) -> Path:
        """A new empty folder for one job. ``label`` is for people who look at the disk."""
        name = f"{label}-{secrets.token_hex(8)}"
        with self._guard:
            os.mkdir(name, _PRIVATE, dir_fd=self._handle)
            self._expected.add(name)
        return self.directory / name

    def remove(self, directory: Path) -> None:
        """Remove a job's folder and end the processes that still live in it. May take a while.

        Whatever else is in the worker's folder and is no job's goes as well: a handler may have
        given its folder another name.
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

        To be called at boot and from time to time, by every worker: each removes what it finds,
        and two that find the same do not disturb each other.
        """
        if self._lock is not None:
            # What cleans temp folders by age must not think that this lock was forgotten.
            os.utime(self._lock)
        own = self.directory.name
        root = os.dup(self._root_handle)  # `close` may come meanwhile
        try:
            names = [name for name in _names(root) if name != own]
            return [name for name in names if _reclaim(self._root, root, name)]
        finally:
            os.close(root)

    def close(self) -> None:
        """Remove this worker's folder and give its name back."""
        if self._lock is None:
            return
        _remove(self._root_handle, self.directory)
        os.close(self._handle)
        os.close(self._root_handle)
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
    except OSError as error:  # something lies there that is no lock; the others are swept
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
    """The locked lock file of ``name``, or None while its worker or a sweeper holds it."""
    path = root / (name + _LOCK)
    while True:
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            path.unlink(missing_ok=True)  # a link is nobody's lock
            continue
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


def open_within(folder: int, path: str) -> int:
    """Open a plain file for reading, at a relative path in an open folder, through no link.

    Raises OSError: PermissionError for what is no plain file, or not in the folder.
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
        # Without waiting: a pipe would be opened only once somebody writes to it.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        file = os.open(name, flags, dir_fd=(opened or [folder])[-1])
    finally:
        for each in opened:
            os.close(each)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise PermissionError(errno.EPERM, "not a plain file")
    return file


def _remove(parent: int, path: Path) -> None:
    """Remove what lies at ``path``, whatever it is, whatever modes it has and whoever still writes
    to it. ``parent`` is the open folder that holds it; the path is only for words and processes."""
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
            pass  # somebody else removed it
        except OSError as error:
            _logger.info("removing a job's folder again after %s", type(error).__name__)
    if _exists(parent, path.name):
        _logger.error("the folder %s could not be removed; it is tried again later", path)


def _exists(parent: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _empty(top: int) -> None:
    """Remove all that is in a folder, however deep it goes, with two open folders at a time.

    A folder that is in the way is moved up into ``top``, and emptied there. What is mounted cannot
    be moved, nor removed: it is never entered.
    """
    names = _left_in(top)
    while names:
        name = names.pop()
        try:
            folder = _open_folder(top, name)
        except OSError as error:  # another took its place: the next try sees what it is
            _logger.info("a folder of a job could not be opened: %s", error.strerror)
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
    """Remove what can be removed at once; the rest are folders with something in them."""
    return [name for name in _entries(folder) if not _removed(folder, name)]


def _moved_up(folder: int, names: list[str], top: int) -> list[str]:
    moved = []
    for name in names:
        fresh = f"{_PREFIX}{secrets.token_hex(8)}"
        try:
            os.close(_open_folder(folder, name))  # which gives the right to move it
            os.rename(name, fresh, src_dir_fd=folder, dst_dir_fd=top)
        except OSError as error:
            _logger.info("a folder of a job could not be moved: %s", error.strerror)
        else:
            moved.append(fresh)
    return moved


def _removed(parent: int, name: str) -> bool:
    """Remove a file, a link or an empty folder. False for a folder that has to be emptied first.

    What can be neither is left: then its folder is not empty in the end, which is an error there.
    """
    try:
        # First of all as a folder: if something is mounted on it, this is what finds out.
        os.rmdir(name, dir_fd=parent)
    except FileNotFoundError:
        pass
    except NotADirectoryError:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=parent)
    except OSError as error:
        if error.errno in _NOT_EMPTY:
            return False
        _logger.info("something of a job could not be removed: %s", error.strerror)
    return True


def _open_folder(parent: int, name: str) -> int:
    """An open folder that may be read and changed by its owner, whatever its owner had allowed."""
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
        """Give a folder's owner all rights to it. A handle that needs no right names it: the mode
        is changed through the handle, so it is never that of something else."""
        flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        folder = os.open(name, flags, dir_fd=parent)
        try:
            Path(f"/proc/self/fd/{folder}").chmod(_PRIVATE)
        finally:
            os.close(folder)

else:

    def _make_accessible(parent: int, name: str) -> None:
        """Give a folder's owner all rights to it; never to what a link points to."""
        os.chmod(name, _PRIVATE, dir_fd=parent, follow_symlinks=False)
