"""What a claim of llm jobs costs grows with the lines that wait, not with jobs or history."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from coatcheck.core.queries import sql as core_sql
from coatcheck.core.queries.claims import take_arguments
from coatcheck.domain.lanes import Lane
from coatcheck.products.llm.queries import sql
from tests.db.edge_guard import AsyncpgConnection, unguarded
from tests.db.llm_claims import CHAT, GENERATE, LlmClaimer, llm_claimer, offer, put_chats
from tests.db.plans import Plan, explain, explain_query
from tests.db.rows import put_flows, recorded

FLOWS = 1_000
JOBS_EACH = 100


@pytest.fixture
async def claims(dsn: str) -> AsyncIterator[LlmClaimer]:
    async with llm_claimer(dsn) as it:
        yield it


async def plan_of(claims: LlmClaimer, statement: str, *arguments: Any) -> Plan:
    return await claims.worker.line.run(lambda it: explain(it, sql(statement), *arguments))


async def finish(connection: AsyncpgConnection, jobs: int) -> None:
    """History: chats that have ended, each with the target that it was given to."""
    async with unguarded(connection):
        await connection.execute(
            """
            WITH done AS (
                INSERT INTO jobs (org_id, id, lane, state, failures_max, endpoint, flow, result,
                                  finished_at, expires_at)
                SELECT 'acme', gen_random_uuid(), 'standard', 'completed', 3, $1, 'a:1', '{}',
                       now(), now() + interval '1 day'
                FROM generate_series(1, $2::integer)
                RETURNING org_id, id
            )
            INSERT INTO llm_assignments (org_id, job_id, target, lease, loading)
            SELECT org_id, id, 'gpu', 1, false FROM done
            """,
            CHAT,
            jobs,
        )


async def test_a_look_at_a_long_queue_reads_the_oldest_of_each_line_and_no_more(
    connection: AsyncpgConnection, claims: LlmClaimer
) -> None:
    await put_flows(connection, FLOWS, JOBS_EACH, endpoint=CHAT)
    for of_each in (1, 4):
        lanes = [lane.value for lane in (Lane.URGENT, Lane.STANDARD) for _ in (CHAT, GENERATE)]
        arguments = [lanes, [CHAT, GENERATE] * 2, [""] * 4, [""] * 4, 2 * FLOWS, of_each]
        plan = await claims.worker.line.run(
            lambda it, arguments=arguments: explain(it, core_sql("claims/look_at_all"), *arguments)
        )
        assert plan.indexes("jobs", "queue") == {"queue_order"}
        assert plan.sequential_scans("queue") == 0
        # One probe for each queue and for the end of each scan; and the oldest jobs of each queue,
        # unless one is enough, which the probe has read.
        assert plan.rows_read("queue") <= FLOWS + 4 + (of_each > 1) * of_each * FLOWS
    assert len(await claims.claim(offer())) == 1


async def test_counting_permits_reads_what_is_held_and_no_history(
    connection: AsyncpgConnection, claims: LlmClaimer
) -> None:
    await finish(connection, 5_000)
    await put_chats(connection, 3, "a:1")
    assert len(await claims.claim(offer(concurrency=2))) == 2
    plan = await plan_of(claims, "target_loads", ["gpu"], [CHAT, GENERATE])
    assert plan.indexes("claims") == {"claims_held"}
    assert plan.indexes("jobs") == {"jobs_pkey"}
    assert plan.rows_read("jobs") == 2
    assert plan.indexes("llm_assignments") == {"llm_assignments_pkey"}
    assert plan.rows_read("llm_assignments") == 2


async def test_taking_a_job_goes_by_its_line(
    connection: AsyncpgConnection, claims: LlmClaimer
) -> None:
    await finish(connection, 5_000)
    await put_chats(connection, 500, "a:1")
    order = claims.worker.order(1)
    arguments, _ = take_arguments(order, [("standard", CHAT, "acme", "a:1")])
    statement, values = sql.bound(
        "claim",
        **arguments,
        targets=["gpu"],
        shown=[True],
        turn_names=["gpu"],
        models=["a:1"],
        began=[1.0],
        urgent_streaks=[0],
        picks=[1],
        ended=["{}"],
        served_orgs=["{}"],
    )
    plan = await claims.worker.line.run(lambda it: explain(it, statement, *values))
    assert plan.sequential_scans("jobs") == 0
    assert plan.rows_read("jobs") <= 2


async def test_jobs_that_wait_for_a_target_are_found_by_their_own_index(
    connection: AsyncpgConnection, claims: LlmClaimer
) -> None:
    await finish(connection, 5_000)
    async with unguarded(connection):
        await put_chats(connection, 200, "a:1")
        await connection.execute(
            recorded(
                "UPDATE jobs SET state = 'retrying', run_at = now() + interval '1 hour',"
                " error_code = CASE WHEN flow = 'a:1' AND id::text < '0190ffff' THEN"
                " 'target_unreachable' END WHERE state = 'queued'"
            )
        )
    plan = await claims.worker.line.run(
        lambda it: explain_query(it, sql, "retry_now", endpoints=[CHAT, GENERATE], rows_max=10)
    )
    assert "postponed_unreachable" in plan.indexes("postponed")
    assert plan.indexes("jobs") == {"jobs_pkey"}
    assert plan.sequential_scans("jobs") == plan.sequential_scans("postponed") == 0
    assert plan.rows_read("postponed") <= 2 * 10
    assert plan.rows_read("jobs") <= 2 * 10
