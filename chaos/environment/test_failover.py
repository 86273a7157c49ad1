"""A failover: the primary dies, the address switches to a standby, which is promoted later.

Until its promotion it accepts no writes (25006). Callers get 503 with Retry-After, workers wait,
and jobs acknowledged while the standby was synchronous exist afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from chaos.environment.commands import coatcheck
from chaos.environment.installation import Installation
from chaos.environment.standby import Address, Standby, follow_in_step
from coatcheck.db.embedded import EmbeddedPostgres
from coatcheck.db.migrate import migrate
from tests.e2e.test_doctor import verdicts


@pytest.fixture
async def standby(pg_server: EmbeddedPostgres, data_root: Path) -> AsyncIterator[Standby]:
    await migrate(pg_server.dsn)
    following = Standby(pg_server, data_root / "standby")
    await asyncio.to_thread(following.start)
    await follow_in_step(pg_server)
    yield following
    await asyncio.to_thread(following.stop)


async def test_a_failover_to_a_standby_that_was_in_step_loses_nothing(
    pg_server: EmbeddedPostgres, standby: Standby, tmp_path: Path
) -> None:
    async with (
        Address.open(pg_server.dsn) as address,
        Installation(pg_server.dsn, tmp_path, dsn=address.dsn) as installed,
    ):
        server = await installed.serve()
        worker = await installed.work()
        installed.callers.start()
        await installed.ran_more()
        before = dict(installed.callers.acknowledged)

        pg_server.kill()
        address.lead_to(standby.dsn)
        await installed.callers.told("database_unavailable", 3)
        await server.says("ReadOnlySQLTransactionError")
        await worker.says("ReadOnlySQLTransactionError")
        looked = await asyncio.to_thread(
            coatcheck,
            "doctor",
            cwd=tmp_path,
            COATCHECK_DATABASE_URL=address.dsn,
            COATCHECK_BLOB_URL=(tmp_path / "blobs").as_uri(),
        )
        assert verdicts(looked.stdout)["database"] == "fail"
        assert "read-only" in looked.stdout
        # Acknowledged jobs can be read meanwhile.
        job = next(iter(before.values()))
        shown = await installed.http.get(f"/api/v1/orgs/default/services/yard/jobs/{job}")
        assert shown.is_success, shown.text
        assert server.runs
        assert worker.runs

        await standby.promote()
        await installed.reconnect(standby.dsn)
        await installed.callers.acknowledged_more()
        await installed.ran_more()
        await installed.callers.stop()
        assert installed.callers.unexpected() == []
        assert installed.callers.acknowledged.items() >= before.items()
        await installed.nothing_was_lost()
        print(installed.callers.summary())
