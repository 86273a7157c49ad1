"""Fixtures every test may use: a database of its own, a server of its own, a folder of its own.

Databases come from one PostgreSQL server per test session, shared by all xdist workers and started
when the first test asks for a database; see postgres_keeper.py for how it ends. Set
COATCHECK_TEST_DSN to the URL of a maintenance database (superuser) to use your own server instead.
"""

from __future__ import annotations

import fcntl
import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from coatcheck.blobs import BlobContainer
from coatcheck.db.embedded import EmbeddedPostgres
from tests.blobs.stores import KINDS, BlobStore, blob_store_of
from tests.databases import Databases
from tests.failure_report import pytest_runtest_makereport  # noqa: F401  a hook of pytest
from tests.rewriting import rewrite_share

if TYPE_CHECKING:  # a test that wants no deployment does not wait for its imports
    from tests.deployment import Deployment

SESSION_DIR_VARIABLE = "COATCHECK_TEST_SESSION_DIR"
KEEPER = Path(__file__).with_name("postgres_keeper.py")
KEEPER_POLL_SECONDS = 0.02
COLLECTED_OBJECTS = 50_000
MEMORY_BYTES_MIN = 8 * 2**30

_session_lock = pytest.StashKey[int]()

# How fast values are drawn and tried says more of a busy machine than of them. A failure names the
# decorator that repeats it.
settings.register_profile(
    "unhurried",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile("unhurried")


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts background jobs that way, and every process of the tests would inherit it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(config, "workerinput"):  # an xdist worker, which inherits the session's folder
        name, workers = config.workerinput["workerid"], config.workerinput["workercount"]
        rewrite_share(config, int(name.removeprefix("gw")), workers)
        return
    session_dir = make_open_folder()
    os.environ[SESSION_DIR_VARIABLE] = str(session_dir)
    descriptor = os.open(session_dir / "session.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    config.stash[_session_lock] = descriptor


def pytest_collection_finish() -> None:
    """Collect garbage less often, and never look through what collecting the tests made: that took
    about a fourteenth of the tests' CPU time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECTED_OBJECTS, 20, 50)


def pytest_unconfigure(config: pytest.Config) -> None:
    descriptor = config.stash.get(_session_lock, None)
    if descriptor is None:
        return
    session_dir = Path(os.environ.pop(SESSION_DIR_VARIABLE))
    os.close(descriptor)  # the keeper's sign to stop the server and remove the folder
    try:
        keeper_lock = (session_dir / "keeper.lock").open()
    except FileNotFoundError:  # no test wanted a database, or the keeper has finished
        shutil.rmtree(session_dir, ignore_errors=True)
        return
    with keeper_lock:
        fcntl.flock(keeper_lock, fcntl.LOCK_EX)
    shutil.rmtree(session_dir, ignore_errors=True)


def make_open_folder() -> Path:
    """A temporary folder that PostgreSQL's account can pass through even when root runs the tests.

    pytest's own temporary folders are closed to everybody but their owner.
    """
    folder = Path(tempfile.mkdtemp(prefix="coatcheck-tests-", dir=temporary_base()))
    folder.chmod(0o711)
    return folder


def temporary_base() -> Path:
    """Memory where there is plenty, unless TMPDIR says otherwise: every test makes a database and
    removes it, and a disk's file system slows down under thousands of files removed a second.
    """
    memory = Path("/dev/shm")
    if "TMPDIR" in os.environ or not os.access(memory, os.W_OK):
        return Path(tempfile.gettempdir())
    return memory if shutil.disk_usage(memory).free >= MEMORY_BYTES_MIN else Path("/tmp")


@pytest.fixture(scope="session")
def databases() -> Databases:
    """The session's server and its migrated template; started by the first worker to ask."""
    session_dir = Path(os.environ[SESSION_DIR_VARIABLE])
    with (session_dir / "start.lock").open("w") as start_lock:
        fcntl.flock(start_lock, fcntl.LOCK_EX)
        if not (session_dir / "databases.json").exists():
            start_keeper(session_dir)
    return Databases.read(session_dir)


def start_keeper(session_dir: Path) -> None:
    log = session_dir / "keeper.log"
    with log.open("wb") as output:
        keeper = subprocess.Popen(
            [sys.executable, KEEPER, session_dir],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # a Ctrl-C ends the tests first, then the server
        )
    while not (session_dir / "databases.json").exists():
        if keeper.poll() is not None:
            raise RuntimeError(f"the tests' PostgreSQL did not start:\n{log.read_text()}")
        time.sleep(KEEPER_POLL_SECONDS)


@pytest.fixture
async def dsn(databases: Databases) -> AsyncIterator[str]:
    """The URL of a migrated database without rows, which is this test's alone: see databases.py."""
    async with databases.fresh() as made:
        yield made


@pytest.fixture
async def deployment(dsn: str, tmp_path: Path) -> AsyncIterator[Deployment]:
    """A deployment with a server, on a database of the test's own: see deployment.py."""
    from tests.deployment import Deployment

    async with Deployment(dsn, tmp_path) as opened:
        yield opened


@pytest.fixture(params=KINDS)
def blob_store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> BlobStore:
    """A place of the test's own, on each blob store in turn; this process can open its URL."""
    session_dir = Path(os.environ[SESSION_DIR_VARIABLE])
    store = blob_store_of(request.param, session_dir, tmp_path / "with a space" / "blobs")
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    return store


@pytest.fixture
def container(blob_store: BlobStore) -> BlobContainer:
    """An empty container, on each blob store in turn."""
    return BlobContainer.open(blob_store.url)


@pytest.fixture
def data_root() -> Iterator[Path]:
    """An empty folder for data folders, open to PostgreSQL's account, removed afterwards."""
    folder = make_open_folder()
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def pg_server(data_root: Path) -> Iterator[EmbeddedPostgres]:
    """A running server of the test's own, fully durable, to be stopped, killed and restarted.

    Its `coatcheck` database is empty: a test that wants tables migrates it.
    """
    copy_first_boot(data_root / "data")
    server = EmbeddedPostgres(data_root / "data")
    server.start()
    yield server
    if not server.is_running():
        server.start()  # only a clean stop gives a killed server's shared memory back
    server.stop()


def copy_first_boot(data: Path) -> None:
    """Make a data folder as it is after its first boot: the faster start."""
    subprocess.run(["cp", "-a", first_boot(), data], check=True)


def first_boot() -> Path:
    """A data folder after its first boot, made once a session."""
    session_dir = Path(os.environ[SESSION_DIR_VARIABLE])
    booted = session_dir / "booted"
    with (session_dir / "booted.lock").open("w") as booting:
        fcntl.flock(booting, fcntl.LOCK_EX)
        if not booted.exists():
            with EmbeddedPostgres(session_dir / "booting"):
                pass
            (session_dir / "booting").rename(booted)
    return booted
