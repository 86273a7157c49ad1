"""Who PostgreSQL runs as, and which folders that account can enter.

PostgreSQL refuses to run as root. A normal user's server runs as that user; root's runs as a system
user that owns nothing else. Root's own folders are often closed to it, and opening them is not ours
to do: we ask as that user what it can reach, and choose other folders where it cannot.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from coatcheck.db.embedded.errors import EmbeddedPostgresError

SYSTEM_USER = "coatcheck-pg"
# Two processes that create the user at once: the loser finds the password file locked.
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
        """Hand a folder that we have just created to this account."""
        if not self.is_invoker:
            os.chown(path, self.uid, self.gid)

    def first_closed(self, paths: list[Path], access: str = "x") -> Path | None:
        """The first of `paths` this account lacks `access` ('r', 'w' or 'x') to, or None.

        Asked of the kernel by a process that runs as the account, so that access lists, mount
        options and user namespaces count as much as mode bits do.
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

    Raises EmbeddedPostgresError when the cluster belongs to somebody we cannot act for.
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
    except KeyError:  # containers run under numbers that have no name
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
        entry = _find(SYSTEM_USER)  # ours, or a rival's
        if entry is not None:
            return entry
    raise EmbeddedPostgresError(
        f"PostgreSQL does not run as root, and creating its user {SYSTEM_USER} failed: {answer}",
        hint,
    )
