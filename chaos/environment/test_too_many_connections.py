"""53300: PostgreSQL has no connection left. Callers get 503 with Retry-After, processes wait."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.environment.commands import coatcheck
from chaos.environment.connections import Crowd
from chaos.environment.installation import Installation
from chaos.environment.waiting import until
from coatcheck.db.embedded import EmbeddedPostgres
from coatcheck.db.migrate import migrate
from tests.conftest import copy_first_boot
from tests.e2e.conftest import free_port

CONNECTIONS = 60
"""So few that others can take them all; none is reserved for superusers."""


@pytest.fixture
def small_server(data_root: Path) -> Iterator[EmbeddedPostgres]:
    copy_first_boot(data_root / "data")
    settings = {"max_connections": CONNECTIONS, "superuser_reserved_connections": 0}
    with EmbeddedPostgres(data_root / "data", settings=settings) as server:
        yield server


async def test_running_processes_wait_for_connections_and_lose_nothing(
    small_server: EmbeddedPostgres, tmp_path: Path
) -> None:
    await migrate(small_server.dsn)
    async with (
        Installation(small_server.dsn, tmp_path) as installed,
        Crowd(small_server.dsn) as crowd,
    ):
        server = await installed.serve()
        worker = await installed.work()
        installed.callers.start()
        await installed.ran_more()

        await _crowd_out(installed, crowd)
        await installed.callers.told("database_unavailable", 3)
        ready = await installed.http.get("/readyz")
        assert ready.status_code == 503
        await server.says("TooManyConnectionsError")
        await worker.says("TooManyConnectionsError")
        assert server.runs
        assert worker.runs

        crowd.leave()
        await installed.callers.acknowledged_more()
        await installed.ran_more()
        await installed.callers.stop()
        assert installed.callers.unexpected() == []
        await installed.nothing_was_lost()
        assert (await installed.http.get("/readyz")).is_success
        print(installed.callers.summary())


async def test_a_process_that_finds_no_connection_at_its_start_says_so_and_may_be_started_again(
    small_server: EmbeddedPostgres, tmp_path: Path
) -> None:
    await migrate(small_server.dsn)
    environment = {
        "COATCHECK_DATABASE_URL": small_server.dsn,
        "COATCHECK_BLOB_URL": (tmp_path / "blobs").as_uri(),
        "COATCHECK_KEY_PEPPER": "a pepper that is only ever used in tests",
    }
    async with Crowd(small_server.dsn) as crowd:
        await crowd.fill()
        for command in (["serve", "--port", str(free_port())], ["worker"]):
            ran = coatcheck(*command, cwd=tmp_path, **environment)
            assert ran.returncode == 1, ran.stderr  # not 2, which supervisors treat as permanent
            assert "TooManyConnectionsError" in ran.stderr
            assert "Traceback" not in ran.stderr


async def _crowd_out(installed: Installation, crowd: Crowd) -> None:
    """Disconnect the processes, as a restart of PostgreSQL does, until others have all connections.

    A disconnected process reconnects at once, and may be faster than the others.
    """

    async def look() -> bool:
        await installed.sql.execute(
            """
            SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE application_name LIKE 'coatcheck %'
            """
        )
        await crowd.fill()
        left = await installed.sql.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'coatcheck %'"
        )
        return not left

    await until(look, "others have every connection")
