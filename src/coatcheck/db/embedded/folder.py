"""The data folder of an embedded server: its location, contents and owner, and the error that says
why a server cannot run on it."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pwd
import re
import shutil
import stat
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from coatcheck.domain.errors import CoatcheckError


class EmbeddedPostgresError(CoatcheckError):
    """The embedded server cannot run; `hint` says how to fix it."""

    code = "embedded_postgres"

    def __init__(self, problem: str, hint: str = "") -> None:
        super().__init__(f"{problem}\n{hint}" if hint else problem)
        self.problem = problem
        self.hint = hint


SYSTEM_DATA = Path("/var/lib/coatcheck")
FOLDER_NAME = ".coatcheck"


def pick_data_dir(requested: Path | None, clone: Path) -> tuple[Path, str]:
    """The data folder to use, and the reason, in words fit to print.

    `requested` is the folder that the user named, if any; `clone` is the one to keep the data in
    otherwise. Creates nothing except, as root, PostgreSQL's system user. Raises
    EmbeddedPostgresError with the obstacle if the requested folder cannot be used.
    """
    if requested is not None:
        layout = Layout.of(requested)
        check_usable(layout, server_account(layout.cluster), suggestion=_system_folder(clone))
        return layout.data, "the folder you named"

    beside = Layout.of(clone / FOLDER_NAME)
    if os.geteuid() != 0:
        check_usable(beside, server_account(beside.cluster), suggestion=Path("~", FOLDER_NAME))
        return beside.data, f"{FOLDER_NAME} in {beside.data.parent}"

    account = server_account(beside.cluster)
    system = Layout.of(_system_folder(clone))
    closed = closed_folder(beside.data, account)
    if closed is not None:
        why = f"PostgreSQL does not run as root, and its user {account.name} cannot enter {closed}"
        return system.data, why
    if system.cluster.exists() and not beside.cluster.exists():
        return system.data, f"this clone's data has been there since {clone} was closed to others"
    return beside.data, f"{FOLDER_NAME} in {beside.data.parent}"


def check_usable(layout: Layout, account: Account, *, suggestion: Path) -> None:
    """Raise EmbeddedPostgresError if a server of `account` cannot keep its data in `layout`."""
    hint = f"Name another folder, for instance --data {suggestion}."
    existing = nearest_existing(layout.data)
    if not existing.is_dir():
        raise EmbeddedPostgresError(f"{existing} is not a folder", hint)
    if not os.access(existing, os.W_OK | os.X_OK):
        raise EmbeddedPostgresError(f"you may not create files in {existing}", hint)
    closed = closed_folder(layout.data, account)
    if closed is not None:
        raise EmbeddedPostgresError(
            f"the data folder {layout.data} cannot be used: PostgreSQL does not run as root, and "
            f"its user {account.name} cannot enter {closed}",
            hint,
        )


def closed_folder(path: Path, account: Account) -> Path | None:
    """The outermost folder on the path to `path` that `account` cannot enter, or None."""
    if account.is_invoker:
        return None
    existing = nearest_existing(path)
    return account.first_closed([*reversed(existing.parents), existing])


def _system_folder(clone: Path) -> Path:
    """A folder for each clone, recognisable by name and unique by path."""
    clone = clone.resolve()
    slug = re.sub(r"[^a-z0-9]+", "-", clone.name.lower()).strip("-") or "data"
    return SYSTEM_DATA / f"{slug}-{hashlib.sha256(os.fsencode(clone)).hexdigest()[:8]}"


SYSTEM_USER = "coatcheck-pg"
# Two processes may create the user at once: the loser finds the password file locked.
USERADD_ATTEMPTS_MAX = 5


class Identity(TypedDict, total=False):
    """The arguments of `subprocess` that run a command as another account."""

    user: int
    group: int
    extra_groups: list[int]


@dataclass(frozen=True)
class Account:
    """The operating system account that owns the server's files and runs its processes."""

    name: str
    uid: int
    gid: int

    @property
    def is_invoker(self) -> bool:
        return self.uid == os.geteuid()

    def identity(self) -> Identity:
        if self.is_invoker:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def own(self, path: Path) -> None:
        """Give this account a folder that we have just created."""
        if not self.is_invoker:
            os.chown(path, self.uid, self.gid)

    def first_closed(self, paths: list[Path], access: str = "x") -> Path | None:
        """The first of `paths` that this account cannot access ('r', 'w' or 'x'), or None.

        A process that runs as the account asks the kernel, so that access lists, mount options and
        user namespaces count as well as mode bits.
        """
        script = f'for path do [ -{access} "$path" ] || {{ printf %s "$path"; exit 1; }}; done'
        asked = subprocess.run(
            ["/bin/sh", "-c", script, "sh", *map(str, paths)],
            check=False,
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            **self.identity(),
        )
        if asked.returncode == 0:
            return None
        if not asked.stdout:
            raise EmbeddedPostgresError(f"cannot run a command as {self.name}: {asked.stderr}")
        return Path(asked.stdout)


def server_account(cluster: Path | None = None) -> Account:
    """The account for a server on `cluster`: the owner of an existing one, else the default.

    Raises EmbeddedPostgresError if the cluster belongs to an account that we cannot act for.
    """
    owner = _owner(cluster) if cluster is not None else None
    if os.geteuid() == 0:
        return owner if owner is not None and owner.uid != 0 else _system_account()
    invoker = _account_of(os.geteuid(), os.getegid())
    if owner is not None and owner.uid != invoker.uid:
        raise EmbeddedPostgresError(
            f"{cluster} belongs to {owner.name}, and you are {invoker.name}",
            "Run as the user who created it (root can, too), or name another folder with --data.",
        )
    return invoker


def _owner(path: Path) -> Account | None:
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return _account_of(status.st_uid, status.st_gid)


def _account_of(uid: int, gid: int) -> Account:
    try:
        return Account(pwd.getpwuid(uid).pw_name, uid, gid)
    except KeyError:  # containers run under ids that have no name
        return Account(f"uid {uid}", uid, gid)


def _system_account() -> Account:
    entry = _find(SYSTEM_USER) or _create_system_user()
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)


def _find(name: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None


def _create_system_user() -> pwd.struct_passwd:
    hint = (
        f"Create it with your system's own tool (a system user named {SYSTEM_USER}, no home, no "
        "shell), run as a normal user, or set COATCHECK_DATABASE_URL to a PostgreSQL you run."
    )
    search = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    useradd = shutil.which("useradd", path=search)
    if useradd is None:
        raise EmbeddedPostgresError(
            f"PostgreSQL does not run as root, and there is no useradd to create {SYSTEM_USER}",
            hint,
        )
    command = [useradd, "--system", "--user-group", "--no-create-home"]
    command += ["--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin", SYSTEM_USER]
    answer = ""
    for _ in range(USERADD_ATTEMPTS_MAX):
        created = subprocess.run(
            command, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        answer = created.stderr.strip()
        entry = _find(SYSTEM_USER)  # ours, or that of a concurrent process
        if entry is not None:
            return entry
    raise EmbeddedPostgresError(
        f"PostgreSQL does not run as root, and creating its user {SYSTEM_USER} failed: {answer}",
        hint,
    )


class Ownership:
    """A lock on a data folder, held from `take` to `give_up` or the end of the process."""

    def __init__(self, lock: Path) -> None:
        self._lock = lock
        self._descriptor: int | None = None

    def take(self) -> None:
        """Take the lock, or raise EmbeddedPostgresError with the process that holds it."""
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


PORT = 5432  # only part of the socket's file name: nothing listens on TCP
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
        """Create the invoker's missing folders; the server's own folders come later."""
        create_folder(self.data, 0o711 if os.geteuid() == 0 else 0o700)
        create_folder(self.log.parent, 0o700)

    def create_socket_dir(self, account: Account) -> Path:
        """The private folder for the socket, created if missing, else checked."""
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
        """Remove a socket folder outside the data folder, unless a server still uses it."""
        if folder.parent != self.data:
            with contextlib.suppress(OSError):  # not there, or not empty
                folder.rmdir()


def create_folder(path: Path, mode: int) -> bool:
    """Create `path` with exactly `mode`, whatever the umask; False if it existed.

    Missing parents are created so that the server's account can pass through them.
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
    """`path` itself, or the closest of its parents that exists."""
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _can_hold_socket(folder: Path) -> bool:
    """Whether the path is short enough for the kernel, and without a comma, which separates hosts
    in a URL."""
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
    """Folders for sockets: the system's for root, the session's for a user, then /tmp."""
    if os.geteuid() == 0:
        preferred = Path("/run")
    else:
        preferred = Path(os.environ.get("XDG_RUNTIME_DIR") or "/nonexistent")
    usable = [preferred] if os.access(preferred, os.W_OK | os.X_OK) else []
    # /tmp last, as TMPDIR may be long; create_socket_dir refuses a folder that another user made.
    return [*usable, Path(tempfile.gettempdir()), Path("/tmp")]  # noqa: S108
