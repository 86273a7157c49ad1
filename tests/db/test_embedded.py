"""The embedded server's life: boots, crashes, adoption, and what it never touches."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import psutil
import pytest

from coatcheck.db.embedded import EmbeddedPostgres, EmbeddedPostgresError, Phase
from coatcheck.db.embedded.cluster import bundled_bin
from coatcheck.db.embedded.folder import server_account
from coatcheck.db.embedded.server import cluster_name
from tests.waiting import eventually

pytestmark = pytest.mark.crash


async def execute(server: EmbeddedPostgres, *statements: str) -> None:
    connection = await asyncpg.connect(server.dsn)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


async def value(server: EmbeddedPostgres, query: str) -> object:
    connection = await asyncpg.connect(server.dsn)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


def processes_of(server: EmbeddedPostgres) -> list[psutil.Process]:
    """Every process of the server, found by the name in its title or the folder it serves."""
    cluster = server.data_dir / "pg"
    marks = (f"postgres: {cluster_name(cluster)}:", f"-D {cluster}")
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        title = " ".join(process.info["cmdline"] or [])
        if process.info["status"] != psutil.STATUS_ZOMBIE and any(mark in title for mark in marks):
            found.append(process)
    return found


OWNER_PROGRAM = """
    import pathlib, signal, sys
    from coatcheck.db.embedded import EmbeddedPostgres
    server = EmbeddedPostgres(pathlib.Path(sys.argv[1]))
    server.start()
    print(server.pid, flush=True)
    signal.pause()
"""


@pytest.fixture
def other_owner(data_root: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has started a server on DATA_ROOT/data and owns it."""
    owner = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(OWNER_PROGRAM), data_root / "data"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.PIPE,
        text=True,
    )
    yield owner
    owner.kill()
    owner.communicate()
    with EmbeddedPostgres(data_root / "data"):
        pass  # adopts what the owner left, and stops it


def server_pid_of(owner: subprocess.Popen[str]) -> int:
    assert owner.stdout is not None
    return int(owner.stdout.readline())


async def test_rows_survive_a_restart(data_root: Path) -> None:
    phases: list[Phase] = []
    server = EmbeddedPostgres(data_root / "data")
    server.start(lambda phase, _seconds: phases.append(phase))
    try:
        await execute(server, "CREATE TABLE kept (x int)", "INSERT INTO kept VALUES (7)")
        first_pid = server.pid
        server.restart()
        assert await value(server, "SELECT x FROM kept") == 7
        assert server.pid != first_pid
    finally:
        server.stop()
    assert phases == [Phase.PREPARING, Phase.CREATING, Phase.STARTING]


async def test_committed_rows_survive_a_sigkill_of_every_process(
    pg_server: EmbeddedPostgres,
) -> None:
    await execute(pg_server, "CREATE TABLE kept (x int)", "INSERT INTO kept VALUES (7)")
    pg_server.kill()
    assert processes_of(pg_server) == []
    assert not pg_server.is_running()

    phases: list[Phase] = []
    pg_server.start(lambda phase, _seconds: phases.append(phase))
    assert await value(pg_server, "SELECT x FROM kept") == 7
    assert phases[-1] is Phase.RECOVERING


async def test_a_start_ends_the_orphans_of_a_killed_postmaster(
    pg_server: EmbeddedPostgres,
) -> None:
    """A backend busy in a statement does not notice its postmaster's death, and goes on."""
    busy = await asyncpg.connect(pg_server.dsn)
    orphan = psutil.Process(await busy.fetchval("SELECT pg_backend_pid()"))
    orphan.suspend()
    assert pg_server.pid is not None
    postmaster = psutil.Process(pg_server.pid)
    postmaster.send_signal(signal.SIGKILL)
    postmaster.wait()
    assert orphan.is_running()

    pg_server.start()
    assert not orphan.is_running() or orphan.status() == psutil.STATUS_ZOMBIE
    assert await value(pg_server, "SELECT 1") == 1
    busy.terminate()


async def test_a_server_left_by_a_killed_owner_is_adopted(
    other_owner: subprocess.Popen[str], data_root: Path
) -> None:
    left_behind = server_pid_of(other_owner)
    other_owner.kill()
    other_owner.wait()

    server = EmbeddedPostgres(data_root / "data")
    server.start()
    assert server.pid == left_behind
    assert await value(server, "SELECT 1") == 1
    server.stop()
    assert processes_of(server) == []


def test_a_second_process_on_the_same_data_is_refused_by_name(
    other_owner: subprocess.Popen[str], data_root: Path
) -> None:
    serving = server_pid_of(other_owner)
    with pytest.raises(EmbeddedPostgresError, match=f"in use by process {other_owner.pid}"):
        EmbeddedPostgres(data_root / "data").start()
    assert psutil.pid_exists(serving)


def test_a_second_owner_in_the_same_process_is_refused(pg_server: EmbeddedPostgres) -> None:
    with pytest.raises(EmbeddedPostgresError, match="in use by process"):
        EmbeddedPostgres(pg_server.data_dir).start()
    assert pg_server.is_running()


@pytest.mark.parametrize("mode", ["fast", "smart", "immediate"])
def test_stop_leaves_no_process_and_no_socket(pg_server: EmbeddedPostgres, mode: str) -> None:
    assert processes_of(pg_server) != []
    pg_server.stop(mode)  # type: ignore[arg-type]
    assert processes_of(pg_server) == []
    assert pg_server.pid is None
    assert list((pg_server.data_dir / "run").iterdir()) == []
    pg_server.stop()  # once more is no error


def test_the_server_is_out_of_reach_of_the_terminals_ctrl_c(pg_server: EmbeddedPostgres) -> None:
    assert pg_server.pid is not None
    assert os.getsid(pg_server.pid) != os.getsid(0)
    assert os.getpgid(pg_server.pid) != os.getpgid(0)


async def test_a_stale_pid_file_that_names_a_stranger_does_not_stop_a_start(
    pg_server: EmbeddedPostgres,
) -> None:
    account = server_account(pg_server.data_dir / "pg")
    stranger = subprocess.Popen(["sleep", "600"], cwd="/", **account.identity())
    try:
        pg_server.kill()
        pid_file = pg_server.data_dir / "pg" / "postmaster.pid"
        _, *rest = pid_file.read_text().splitlines(keepends=True)
        pid_file.write_text("".join([f"{stranger.pid}\n", *rest]))

        pg_server.start()
        assert await value(pg_server, "SELECT 1") == 1
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_copy_of_a_live_data_folder_is_refused(
    pg_server: EmbeddedPostgres, data_root: Path
) -> None:
    copy = data_root / "copy"
    account = server_account(pg_server.data_dir / "pg")
    for folder in (copy, copy / "pg"):
        folder.mkdir()
        folder.chmod(0o711)
    account.own(copy / "pg")
    for name in ("postmaster.pid", "PG_VERSION"):
        shutil.copy(pg_server.data_dir / "pg" / name, copy / "pg" / name)

    with pytest.raises(EmbeddedPostgresError, match=f"{pg_server.pid}, which serves"):
        EmbeddedPostgres(copy).start()
    assert pg_server.is_running()


async def test_a_first_boot_that_was_cut_short_is_begun_again(data_root: Path) -> None:
    unfinished = data_root / "data" / "pg.unfinished-x7k2"
    unfinished.mkdir(parents=True)
    (unfinished / "PG_VERSION").write_text("18\n")
    (data_root / "data").chmod(0o711)
    with EmbeddedPostgres(data_root / "data") as server:
        assert await value(server, "SELECT 1") == 1
    assert not list((data_root / "data").glob("pg.unfinished*"))


async def test_a_first_boot_killed_in_the_middle_is_begun_again(
    other_owner: subprocess.Popen[str], data_root: Path
) -> None:
    """The killed owner's initdb goes on for a while beside the one of the second boot."""
    data = data_root / "data"
    eventually(lambda: list(data.glob("pg.unfinished-*/global")), "initdb to be at work")
    other_owner.kill()
    other_owner.wait()
    assert not (data / "pg").exists()

    with EmbeddedPostgres(data) as server:
        assert await value(server, "SELECT 1") == 1


def test_a_cluster_of_another_major_version_is_refused(pg_server: EmbeddedPostgres) -> None:
    pg_server.stop()
    version = pg_server.data_dir / "pg" / "PG_VERSION"
    version.write_text("17\n")
    with pytest.raises(EmbeddedPostgresError, match="created by PostgreSQL 17"):
        pg_server.start()
    version.write_text("18\n")


async def test_a_path_too_long_for_a_socket_gets_a_private_folder_elsewhere(
    data_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = data_root / ("deep-" * 20) / "data"
    server = EmbeddedPostgres(deep)
    with server:
        socket_dir = Path(str(await value(server, "SHOW unix_socket_directories")).strip('"'))
        assert deep not in socket_dir.parents
        assert stat.S_IMODE(socket_dir.stat().st_mode) == 0o700
        assert socket_dir.stat().st_uid == server_account(deep / "pg").uid

        monkeypatch.setenv("XDG_RUNTIME_DIR", str(data_root))
        monkeypatch.setattr(tempfile, "tempdir", str(data_root))
        assert EmbeddedPostgres(deep).dsn == server.dsn  # a command in another environment
    assert not socket_dir.exists()


async def test_a_socket_folder_that_others_may_enter_is_refused(data_root: Path) -> None:
    run = data_root / "data" / "run"
    run.mkdir(parents=True)
    (data_root / "data").chmod(0o711)
    run.chmod(0o755)
    server = EmbeddedPostgres(data_root / "data")
    with pytest.raises(EmbeddedPostgresError, match="not private"):
        server.start()
    assert stat.S_IMODE(run.stat().st_mode) == 0o755
    run.rmdir()
    with server:
        assert stat.S_IMODE(run.stat().st_mode) == 0o700


async def test_settings_are_durable_and_a_callers_own_win(data_root: Path) -> None:
    with EmbeddedPostgres(data_root / "data", settings={"work_mem": "9MB"}) as server:
        assert await value(server, "SHOW work_mem") == "9MB"
        for durable in ("fsync", "full_page_writes", "synchronous_commit", "data_checksums"):
            assert await value(server, f"SHOW {durable}") == "on"
        assert await value(server, "SHOW listen_addresses") == ""
        assert await value(server, "SHOW timezone") == "UTC"


async def test_values_in_failing_statements_do_not_reach_the_log(
    pg_server: EmbeddedPostgres,
) -> None:
    canary = "canary-3f9d"
    connection = await asyncpg.connect(pg_server.dsn)
    try:
        await connection.execute("CREATE TABLE keys (k text PRIMARY KEY, n int)")
        await connection.execute("INSERT INTO keys VALUES ($1, 1)", canary)
        with pytest.raises(asyncpg.UniqueViolationError):
            await connection.execute("INSERT INTO keys VALUES ($1, 1)", canary)
        with pytest.raises(asyncpg.InvalidTextRepresentationError):
            await connection.execute(f"SELECT '{canary}'::int")
        with pytest.raises(asyncpg.RaiseError):
            await connection.execute(f"DO $$ BEGIN RAISE '{canary}'; END $$")
    finally:
        await connection.close()
    pg_server.stop()
    log = pg_server.log_path.read_text()
    assert "database system is shut down" in log
    assert canary not in log


def test_a_large_log_is_set_aside_at_a_start(
    pg_server: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    pg_server.stop()
    former = pg_server.log_path.read_text()
    monkeypatch.setattr("coatcheck.db.embedded.server.LOG_BYTES_MAX", len(former) - 1)
    pg_server.start()
    assert pg_server.log_path.with_suffix(".log.1").read_text() == former
    assert "database system was shut down" in pg_server.log_path.read_text()
    assert former not in pg_server.log_path.read_text()


def test_a_server_that_cannot_start_says_why_and_gives_the_folder_up(data_root: Path) -> None:
    data = data_root / "data"
    with pytest.raises(EmbeddedPostgresError, match="no_such_setting"):
        EmbeddedPostgres(data, settings={"no_such_setting": "1"}).start()
    with EmbeddedPostgres(data) as server:
        assert server.is_running()


def test_the_dsn_works_for_libpq(pg_server: EmbeddedPostgres) -> None:
    asked = subprocess.run(
        [bundled_bin() / "psql", "-XAt", "-c", "SELECT current_database()", pg_server.dsn],
        capture_output=True,
        text=True,
    )
    assert asked.stdout == "coatcheck\n"


async def test_a_data_path_with_spaces_and_quotes_works(data_root: Path) -> None:
    with EmbeddedPostgres(data_root / 'my "data", it\'s') as server:
        assert await value(server, "SELECT 1") == 1


def test_the_data_folder_is_closed_to_other_users(pg_server: EmbeddedPostgres) -> None:
    cluster, run = pg_server.data_dir / "pg", pg_server.data_dir / "run"
    account = server_account(cluster)
    for folder in (cluster, run):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert folder.stat().st_uid == account.uid
    assert pg_server.data_dir.stat().st_uid == os.geteuid()
    assert not stat.S_IMODE(pg_server.data_dir.stat().st_mode) & 0o066
