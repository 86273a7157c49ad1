"""What a claim costs with ten thousand flows in a run: what it takes, and little more."""

from __future__ import annotations

import pytest

from coatcheck.core.queries import sql
from coatcheck.db.connection import _STATEMENT_CHARACTERS_CACHED_MAX
from coatcheck.domain.limits import RUN_QUEUES_SCANNED_MAX
from tests.db.claimer import Claimer
from tests.db.edge_guard import AsyncpgConnection
from tests.db.plans import Plan, explain
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


async def plan_of(worker: Claimer, room: int, *, limited: bool = True) -> Plan:
    arguments = worker.order(room).arguments(limited=limited)
    if not limited:
        arguments += [[], [], [], [], [], [], 60]
    statement = sql("claims/claim_limited" if limited else "claims/exchange")
    return await worker.line.run(lambda it: explain(it, statement, *arguments))


async def test_a_look_passes_so_many_flows_that_wait_and_no_more(
    run: None, connection: AsyncpgConnection, worker: Claimer
) -> None:
    await connection.execute("UPDATE run_tokens SET next_look_at = now(), looked_to = ''")
    plan = await plan_of(worker, 100)
    assert plan.sequential_scans("jobs") == plan.sequential_scans("run_tokens") == 0
    assert plan.rows_read("jobs") <= RUN_QUEUES_SCANNED_MAX + OVERHEAD
    assert plan.rows_read("run_tokens") <= RUN_QUEUES_SCANNED_MAX + OVERHEAD


async def test_between_looks_flows_that_wait_cost_nothing(
    run: None, connection: AsyncpgConnection, worker: Claimer
) -> None:
    await connection.execute("UPDATE run_tokens SET next_look_at = now() + interval '1 hour'")
    plan = await plan_of(worker, 100)
    assert plan.rows_read("jobs") + plan.rows_read("run_tokens") <= OVERHEAD


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
    plan = await plan_of(worker, 500)
    assert "run_tokens_next" in plan.indexes("run_tokens")
    assert plan.rows_read("jobs") + plan.rows_read("run_tokens") <= 4 * 50 + OVERHEAD
    assert len(await worker.claim_limited(500)) == 50


@pytest.mark.parametrize("room", [1, 50])
async def test_a_claim_reads_as_much_as_it_has_room_for(
    room: int, run: None, connection: AsyncpgConnection, worker: Claimer
) -> None:
    await let_pass(connection, 2_000)
    plan = await plan_of(worker, room)
    # Each that is due is asked whether it has work, looked up and claimed; and then the look.
    most = 3 * (room + DUE_BESIDES) + RUN_QUEUES_SCANNED_MAX + OVERHEAD
    assert plan.rows_read("jobs") <= most
    assert plan.rows_read("run_tokens") <= most


async def test_a_claim_of_others_passes_the_run_in_one_step(run: None, worker: Claimer) -> None:
    plan = await plan_of(worker, 100, limited=False)
    assert plan.rows_read("jobs") <= OVERHEAD


def test_the_driver_keeps_the_plan_of_every_claim() -> None:
    for statement in ("claims/claim_limited", "claims/exchange", "claims/settle"):
        assert len(sql(statement)) < _STATEMENT_CHARACTERS_CACHED_MAX
