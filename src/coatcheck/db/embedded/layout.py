"""The data folder: what lies where, who owns it, and who may enter.

    DATA/                           the invoker's; others may pass through it when root runs us
        lock                        held by the process that owns the server
        postgresql.coatcheck.conf   our settings, written at every start
        log/postgresql.log
        pg/                         the cluster, the server account's alone
        run/                        the socket, the server account's alone

The socket's folder is what keeps strangers out: connections over it need no password, and only the
server's account and root can enter. A folder is given its mode when we create it and never after.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

from coatcheck.db.embedded.account import Account
from coatcheck.db.embedded.errors import EmbeddedPostgresError

PORT = 5432  # only names the socket's file: nothing listens on TCP
# The kernel's limit is 107 bytes on Linux and 103 on macOS.
SOCKET_PATH_BYTES_MAX = 100


@dataclass(frozen=True)
class Layout:
    """The paths inside one data folder."""

    data: Path

    @classmethod
    def of(cls, data_dir: Path) -> Layout:
        return cls(data_dir.expanduser().resolve())

    @property
    def lock(self) -> Path:
        return self.data / "lock"

    @property
    def conf(self) -> Path:
        return self.data / "postgresql.coatcheck.conf"

    @property
    def log(self) -> Path:
        return self.data / "log" / "postgresql.log"

    @property
    def cluster(self) -> Path:
        return self.data / "pg"

    @property
    def socket_dir(self) -> Path:
        usual = self.data / "run"
        return usual if _can_hold_socket(usual) else _short_socket_dir(self.data)

    def create_folders(self) -> None:
        """Create what is missing for the invoker; the server's own folders come later."""
        create_folder(self.data, 0o711 if os.geteuid() == 0 else 0o700)
        create_folder(self.log.parent, 0o700)

    def create_socket_dir(self, account: Account) -> Path:
        """The private folder for the socket, created if missing and checked if not."""
        folder = self.socket_dir
        if create_folder(folder, 0o700):
            account.own(folder)
        found = folder.lstat()
        private = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
        if not private or found.st_uid != account.uid:
            raise EmbeddedPostgresError(
                f"{folder}, where the server's socket belongs, is not private to {account.name}",
                "Remove it, or name a data folder with a shorter path.",
            )
        return folder

    def remove_foreign_socket_dir(self, folder: Path) -> None:
        """Leave nothing outside the data folder, unless a server is still using it."""
        if folder.parent != self.data:
            with contextlib.suppress(OSError):  # not there, or not empty
                folder.rmdir()


def create_folder(path: Path, mode: int) -> bool:
    """Create `path` with exactly `mode`, whatever the umask; False if it was there already.

    Parents that are missing are created open to pass through, as the server's account must.
    """
    if not path.parent.is_dir():
        create_folder(path.parent, 0o711)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        return False
    path.chmod(mode)
    return True


def nearest_existing(path: Path) -> Path:
    """`path` itself or the closest of its parents that exists."""
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _can_hold_socket(folder: Path) -> bool:
    """Short enough for the kernel, and without the comma that separates hosts in a URL."""
    length = len(os.fsencode(folder / f".s.PGSQL.{PORT}"))
    return length <= SOCKET_PATH_BYTES_MAX and "," not in str(folder)


def _short_socket_dir(data: Path) -> Path:
    name = f"coatcheck-{hashlib.sha256(os.fsencode(data)).hexdigest()[:12]}"
    short = [folder / name for folder in _runtime_folders() if _can_hold_socket(folder / name)]
    if not short:
        raise EmbeddedPostgresError(
            f"no folder is short enough for the server's socket (data folder {data})",
            f"Name a data folder of at most {SOCKET_PATH_BYTES_MAX - 20} characters with --data.",
        )
    return short[0]


def _runtime_folders() -> list[Path]:
    """Folders made for sockets: the system's for root, the session's for a user, then /tmp."""
    if os.geteuid() == 0:
        preferred = Path("/run")
    else:
        preferred = Path(os.environ.get("XDG_RUNTIME_DIR") or "/nonexistent")
    usable = [preferred] if os.access(preferred, os.W_OK | os.X_OK) else []
    # /tmp last, as TMPDIR may be long; create_socket_dir refuses a folder that a stranger made.
    return [*usable, Path(tempfile.gettempdir()), Path("/tmp")]  # noqa: S108
