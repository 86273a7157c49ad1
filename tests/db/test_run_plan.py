"""What a claim costs with ten thousand flows in a run: what it takes, and little more."""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

import asyncpg
import pytest

from coatcheck.core.queries import sql
from coatcheck.core.queries.claims import LimitedClaim
from coatcheck.db.connection import _STATEMENT_CHARACTERS_CACHED_MAX, RawConnection
from coatcheck.domain.limits import RUN_QUEUES_SCANNED_MAX
from tests.db.claimer import Claimer
from tests.db.edge_guard import AsyncpgConnection
from tests.db.plans import explain
from tests.db.run_rows import let_pass, put_run

FLOWS = 10_000
OVERHEAD = 20
"""Rows read to find the run, its limits and its end."""
DUE_BESIDES = 20
"""Flows that are looked at besides those there is room for: some may have no more work."""


@pytest.fixture
async def run(connection: AsyncpgConnection, worker: Claimer) -> None:
    """Ten thousand keys with work, each of which has just had its token."""
    keys = [f"host-{number:05}.example" for number in range(FLOWS)]
    await put_run(connection, 2, keys=keys, key_per_second=0.001)
    while await worker.claim_limited(500):
        pass
    assert await connection.fetchval("SELECT count(*) FROM run_tokens WHERE flow <> ''") == FLOWS
    await connection.execute("VACUUM jobs, run_tokens")


class Plans:
    """Runs a claim's statements as they are, and undoes them, and sums up what they read."""

    def __init__(self, connection: RawConnection) -> None:
        self._connection = connection
        self.read: Counter[str] = Counter()
        self.sequential_scans = 0
        self.indexes: set[str] = set()

    async def fetch(self, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        plan = await explain(self._connection, statement, *arguments)
        for table in ("jobs", "run_tokens"):
            self.read[table] += round(plan.rows_read(table))
            self.sequential_scans += plan.sequential_scans(table)
            self.indexes |= plan.indexes(table)
        return await self._connection.fetch(statement, *arguments)


async def plans_of(worker: Claimer, room: int) -> Plans:
    """The plans of all statements of a claim under limits, which is undone."""

    async def claim(connection: RawConnection) -> Plans:
        plans = Plans(connection)
        undone = connection.transaction()
        await undone.start()
        await LimitedClaim(cast("RawConnection", plans), worker.order(room)).claim()
        await undone.rollback()
        return plans

    return await worker.line.run(claim)


async def test_a_look_passes_so_many_flows_that_wait_and_no_more(
    run: None, connection: AsyncpgConnection, worker: Claimer
) -> None:
    await connection.execute("UPDATE run_tokens SET next_look_at = now(), looked_to = ''")
    plans = await plans_of(worker, 100)
    assert plans.sequential_scans == 0
    assert plans.read["jobs"] <= RUN_QUEUES_SCANNED_MAX + OVERHEAD
    assert plans.read["run_tokens"] <= RUN_QUEUES_SCANNED_MAX + OVERHEAD


async def test_between_looks_flows_that_wait_cost_nothing(
    run: None, connection: AsyncpgConnection, worker: Claimer
) -> None:
    await connection.execute("UPDATE run_tokens SET next_look_at = now() + interval '1 hour'")
    plans = await plans_of(worker, 100)
    assert plans.read["jobs"] + plans.read["run_tokens"] <= OVERHEAD


async def test_flows_whose_token_is_there_are_found_among_all_the_others(
    run: None, connection: AsyncpgConnection, worker: Claimer
) -> None:
    await connection.execute(
        """
        UPDATE run_tokens SET in_step_at = now()
        WHERE flow IN (SELECT flow FROM run_tokens WHERE flow <> '' ORDER BY random() LIMIT 50)
        """
    )
    await connection.execute("UPDATE run_tokens SET next_look_at = now() + interval '1 hour'")
    plans = await plans_of(worker, 500)
    assert "run_tokens_next" in plans.indexes
    assert plans.read["jobs"] + plans.read["run_tokens"] <= 4 * 50 + OVERHEAD
    assert len(await worker.claim_limited(500)) == 50


@pytest.mark.parametrize("room", [1, 50])
async def test_a_claim_reads_as_much_as_it_has_room_for(
    room: int, run: None, connection: AsyncpgConnection, worker: Claimer
) -> None:
    await let_pass(connection, 2_000)
    plans = await plans_of(worker, room)
    # Each that is due is asked whether it has work, looked up and claimed; and then the look.
    most = 3 * (room + DUE_BESIDES) + RUN_QUEUES_SCANNED_MAX + OVERHEAD
    assert plans.read["jobs"] <= most
    assert plans.read["run_tokens"] <= most


async def test_a_claim_of_others_passes_the_run_in_one_step(run: None, worker: Claimer) -> None:
    arguments = [*worker.order(100).arguments(limited=False), [], [], [], [], [], [], 60, []]
    plan = await worker.line.run(lambda it: explain(it, sql("claims/exchange"), *arguments))
    assert plan.rows_read("jobs") <= OVERHEAD


def test_the_driver_keeps_the_plan_of_every_claim() -> None:
    for name in ("look", "run_keys", "take", "exchange", "settle"):
        statement = f"claims/{name}"
        assert len(sql(statement)) < _STATEMENT_CHARACTERS_CACHED_MAX
