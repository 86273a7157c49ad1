"""PostgreSQL behind PgBouncer: session mode works; in the other modes no process starts.

Every command that uses the database refuses the other modes at its start, with an explanation.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.environment.commands import coatcheck
from chaos.environment.installation import Installation
from chaos.environment.pooler import PoolMode, pgbouncer
from coatcheck import Engine
from coatcheck.cli.console import EXIT_MISCONFIGURED
from coatcheck.db.connection import PINNED_PLANS, Connection
from coatcheck.db.diagnosis import require_sessions
from coatcheck.db.embedded import EmbeddedPostgres
from coatcheck.db.migrate import migrate
from coatcheck.domain.errors import SessionsNotKept
from tests.e2e.conftest import free_port
from tests.e2e.test_doctor import verdicts

UNKNOWN_TO_PGBOUNCER = ",".join([*PINNED_PLANS, "idle_in_transaction_session_timeout"])


@pytest.fixture
async def server(pg_server: EmbeddedPostgres) -> EmbeddedPostgres:
    await migrate(pg_server.dsn)
    return pg_server


@pytest.mark.parametrize("mode", ["transaction", "statement"])
def test_every_command_refuses_a_pooler_that_does_not_keep_sessions(
    server: EmbeddedPostgres, tmp_path: Path, mode: PoolMode
) -> None:
    with pgbouncer(server.dsn, mode) as dsn:
        environment = {
            "COATCHECK_DATABASE_URL": dsn,
            "COATCHECK_BLOB_URL": (tmp_path / "blobs").as_uri(),
            "COATCHECK_KEY_PEPPER": "a pepper that is only ever used in tests",
        }
        commands = [["serve", "--port", str(free_port())], ["worker"], ["orgs", "list"]]
        ran = [coatcheck(*command, cwd=tmp_path, **environment) for command in commands]
        doctor = coatcheck("doctor", cwd=tmp_path, **environment)

    for refused in ran:
        said = refused.stdout + refused.stderr
        assert refused.returncode == EXIT_MISCONFIGURED, said
        assert "COATCHECK_DATABASE_URL leads through a pooler that does not keep sessions" in said
        assert "session mode" in said
        assert "Traceback" not in said
    assert doctor.returncode == 1
    found = verdicts(doctor.stdout)
    assert (found["database"], found["schema"]) == ("ok", "ok")
    assert (found["LISTEN/NOTIFY"], found["advisory locks"]) == ("fail", "fail")


async def test_a_database_is_migrated_through_a_pooler_in_transaction_mode(
    pg_server: EmbeddedPostgres,
) -> None:
    with pgbouncer(pg_server.dsn, "transaction", connections=1) as dsn:
        assert await migrate(dsn)
        assert await migrate(dsn) == []


@pytest.mark.parametrize("round_robin", [False, True], ids=["last used first", "in turns"])
@pytest.mark.parametrize("connections", [1, 2, 3, 20])
@pytest.mark.parametrize("ignored", ["", UNKNOWN_TO_PGBOUNCER], ids=["strict", "lenient"])
async def test_transaction_mode_is_seen_through_however_the_pooler_is_set(
    server: EmbeddedPostgres, connections: int, round_robin: bool, ignored: str
) -> None:
    options = {"connections": connections, "round_robin": round_robin, "ignored": ignored}
    with pgbouncer(server.dsn, "transaction", **options) as dsn:  # type: ignore[arg-type]
        await _warm_up(dsn, connections)
        line = Connection(dsn, name="tests")
        try:
            with pytest.raises(SessionsNotKept):
                await require_sessions(line)
        finally:
            await line.close()
        with pytest.raises(SessionsNotKept):
            await Engine.connect(dsn)


async def test_a_connection_of_its_own_and_session_mode_raise_no_alarm(
    server: EmbeddedPostgres,
) -> None:
    with pgbouncer(server.dsn, "session") as pooled:
        for dsn in [server.dsn, pooled] * 5:
            line = Connection(dsn, name="tests")
            try:
                await require_sessions(line)
            finally:
                await line.close()


@pytest.mark.parametrize("ignored", ["", UNKNOWN_TO_PGBOUNCER], ids=["strict", "lenient"])
async def test_in_session_mode_plans_are_pinned_as_they_are_without_a_pooler(
    server: EmbeddedPostgres, ignored: str
) -> None:
    with pgbouncer(server.dsn, "session", ignored=ignored) as dsn:
        line = Connection(dsn, name="tests", server_settings=PINNED_PLANS)
        try:
            rows = await line.fetch(
                "SELECT name, setting FROM pg_settings WHERE name = ANY($1)", [*PINNED_PLANS]
            )
        finally:
            await line.close()
    assert {row["name"]: row["setting"] for row in rows} == dict(PINNED_PLANS)


async def test_in_session_mode_jobs_are_handed_in_elected_for_and_woken_up_for(
    server: EmbeddedPostgres, tmp_path: Path
) -> None:
    with pgbouncer(server.dsn, "session") as dsn:
        async with Installation(server.dsn, tmp_path, dsn=dsn) as installed:
            await installed.serve()
            await installed.work()
            installed.callers.start()
            await installed.callers.acknowledged_more(40)
            await installed.callers.stop()
            await installed.nothing_was_lost()
            assert installed.callers.refusals == []
            elected = await installed.sql.fetchval(
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted"
            )
            assert elected > 0, "nobody was elected"


async def _warm_up(dsn: str, connections: int) -> None:
    """Let the pooler open its connections, as when others use it."""
    lines = [Connection(dsn, name=f"tests {number}") for number in range(connections)]
    for line in lines:
        await line.fetch("SELECT 1")
    for line in lines:
        await line.close()
