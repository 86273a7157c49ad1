"""PostgreSQL's disk is full: callers get 503 with Retry-After, and no acknowledged job is lost.

There are two cases. If the tables' disk is full, a statement fails with 53100 and PostgreSQL
continues. If the write-ahead log's disk is full, PostgreSQL panics and exits; it recovers when
there is space.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import asyncpg
import pytest

from chaos.environment.disk import SmallDisk, small_disk
from chaos.environment.installation import Installation
from chaos.environment.waiting import until
from coatcheck.db.embedded import EmbeddedPostgres, EmbeddedPostgresError
from coatcheck.db.embedded.folder import server_account
from coatcheck.db.migrate import migrate
from tests.conftest import copy_first_boot

DISK_MEBIBYTES = 256
TABLE_ROOM_BYTES = 256 * 1024
ANSWER_BYTES = 20_000
"""The size of each incompressible payload: large, to fill the disk soon."""


@pytest.fixture
def disk(data_root: Path) -> Iterator[SmallDisk]:
    with small_disk(data_root / "disk", DISK_MEBIBYTES) as mounted:
        yield mounted


@pytest.fixture
def server(disk: SmallDisk) -> Iterator[EmbeddedPostgres]:
    """A server with its data folder on the small disk; it is restarted at least for its end."""
    copy_first_boot(disk.folder / "data")
    running = EmbeddedPostgres(disk.folder / "data", settings={"max_wal_size": "64MB"})
    running.start()
    yield running
    disk.make_room()
    if not running.is_running():
        running.start()
    running.stop()


@pytest.fixture
def log_elsewhere(server: EmbeddedPostgres, data_root: Path) -> None:
    """Move the write-ahead log to another disk, as in many installations."""
    server.stop()
    there, here = data_root / "wal", server.data_dir / "pg" / "pg_wal"
    shutil.move(here, there)
    account = server_account(server.data_dir / "pg")
    account.own(there)
    for path in there.rglob("*"):
        account.own(path)
    here.symlink_to(there)
    server.start()


async def test_tables_without_room_are_answered_503_and_it_goes_on_when_there_is_some(
    server: EmbeddedPostgres, log_elsewhere: None, disk: SmallDisk, tmp_path: Path
) -> None:
    await migrate(server.dsn)
    async with Installation(server.dsn, tmp_path) as installed:
        program = await installed.serve()
        worker = await installed.work()
        installed.callers.start(4, padding=_noise())
        await installed.ran_more()

        disk.fill(leaving=TABLE_ROOM_BYTES)
        await installed.callers.told("database_unavailable", 3)
        await program.says("DiskFullError")
        assert server.is_running()
        assert program.runs
        assert worker.runs

        disk.make_room()
        await installed.callers.acknowledged_more()
        await installed.ran_more()
        await installed.callers.stop()
        assert installed.callers.unexpected() == []
        await installed.nothing_was_lost()
        print(installed.callers.summary())


async def test_a_log_without_room_ends_postgresql_and_nothing_acknowledged_is_lost(
    server: EmbeddedPostgres, disk: SmallDisk, tmp_path: Path
) -> None:
    await migrate(server.dsn)
    async with Installation(server.dsn, tmp_path) as installed:
        program = await installed.serve()
        worker = await installed.work()
        installed.callers.start(4, padding=_noise())
        await installed.ran_more()

        disk.fill()
        with suppress(asyncpg.PostgresError, OSError):  # its reserve is used up, too
            await installed.sql.execute("SELECT pg_switch_wal()")
        await _until_it_gave_up(server)
        await installed.callers.told("database_unavailable", 3)
        with pytest.raises(EmbeddedPostgresError):  # it cannot even recover
            await asyncio.to_thread(server.start)
        assert program.runs
        assert worker.runs

        disk.make_room()
        await asyncio.to_thread(server.start)
        await installed.callers.acknowledged_more()
        await installed.ran_more()
        await installed.callers.stop()
        await installed.reconnect()
        assert installed.callers.unexpected() == []
        await installed.nothing_was_lost()
        print(installed.callers.summary())


async def _until_it_gave_up(server: EmbeddedPostgres) -> None:
    """PostgreSQL panics, tries to recover, and exits when it cannot. Its log is full as well."""

    async def ended() -> bool:
        return not server.is_running()

    await until(ended, "PostgreSQL ends")


def _noise() -> str:
    """Text that PostgreSQL cannot compress."""
    return secrets.token_hex(ANSWER_BYTES // 2)
