"""A claim that meets only locked work is repeated soon, without a notification or a poll."""

from __future__ import annotations

import asyncio
from typing import Final, NoReturn

import pytest

from coatcheck import Service
from coatcheck.db.database import Database
from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.lanes import DEFAULT_POLICIES, Lane
from coatcheck.worker.exchange_loop import ExchangeLoop, PollInterval
from coatcheck.worker.lease import LeaseRenewer
from coatcheck.worker.slots import SlotPool
from tests.db.edge_guard import AsyncpgConnection
from tests.db.rows import ENDPOINT, connected, put_job
from tests.waiting import until_true

AN_HOUR: Final = 3_600.0


async def work() -> None:
    """The handler of the endpoint."""


def fail(*_: object) -> NoReturn:
    raise AssertionError("this does not happen here")


@pytest.mark.parametrize("limited", [False, True], ids=["no limit", "a limit"])
async def test_a_claim_that_was_locked_out_is_repeated(
    dsn: str, connection: AsyncpgConnection, limited: bool
) -> None:
    if limited:
        await connection.execute(
            "INSERT INTO concurrency_limits (org_id, scope, name, held_max)"
            " VALUES ('*', 'endpoint', $1, 5)",
            ENDPOINT,
        )
    service = Service("demo")
    service.post("/work")(work)
    endpoints = {each.name: each for each in service.endpoints.values()}
    claimed: list[ClaimedJob] = []
    async with Database.of_engine(dsn) as database:
        renewer = LeaseRenewer(
            database.heartbeat,
            database.heartbeat,
            DEFAULT_POLICIES,
            name="test",
            version="0",
            endpoints=[*endpoints],
            on_cancel=fail,
            on_lost=fail,
            on_held_again=fail,
            recording_failed_for=float,
        )
        await renewer.register()
        exchange = ExchangeLoop(
            database.exchange,
            database.claim,
            renewer,
            database.notifier,
            {Lane.STANDARD: SlotPool(8, fail)},
            endpoints,
            PollInterval(AN_HOUR, AN_HOUR),
            keep_completed_seconds=60,
            keep_failed_seconds=60,
            accept=claimed.extend,
            on_ended={},
        )
        job = await put_job(connection)
        async with connected(dsn) as other, other.transaction():
            await other.fetch("SELECT 1 FROM queue FOR UPDATE")
            await exchange.serve_once()
            assert not claimed
        running = asyncio.create_task(exchange.run())
        await until_true(lambda: len(claimed) == 1, "the job is claimed")
        assert claimed[0].uuid == job.uuid
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
