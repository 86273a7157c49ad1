"""What counting failures by code costs: so many tasks as it may look at, of however many failed."""

from __future__ import annotations

from coatcheck.db.connection import Connection
from coatcheck.domain.ids import new_id
from coatcheck.products.batches.queries import sql
from tests.db.edge_guard import AsyncpgConnection
from tests.db.plans import explain_query
from tests.db.rows import ENDPOINT, ORG, recorded

TASKS = 3_000
COUNTED_MAX = 500
OVERHEAD = 20


async def test_failures_are_counted_up_to_a_number_by_one_range_of_an_index(
    connection: AsyncpgConnection, dsn: str
) -> None:
    run = new_id()
    await connection.execute(
        recorded("""
        INSERT INTO jobs
            (org_id, id, lane, failures_max, endpoint, flow, run_id, task_index, payload)
        SELECT $1, gen_random_uuid(), 'bulk', 3, $2, replace($3::uuid::text, '-', ''), $3, n, '{}'
        FROM generate_series(1, $4::integer) AS n
        """),
        ORG,
        ENDPOINT,
        run,
        TASKS,
    )
    await connection.execute(
        recorded("""
        UPDATE jobs SET state = 'failed', finished_at = now(), expires_at = 'infinity',
                        error_code = CASE WHEN task_index % 3 = 0 THEN 'rare' ELSE 'common' END
        """)
    )
    await connection.execute("VACUUM ANALYZE jobs, ended_tasks")
    of_run = {"org": ORG, "run": run, "state": "failed", "after": -1}
    plan = await explain_query(
        connection, sql, "tasks/failures", **of_run, limit=COUNTED_MAX, codes_max=50
    )
    assert plan.indexes("jobs") == {"jobs_pkey"}
    assert plan.indexes("ended_tasks") == {"ended_tasks_pkey"}
    assert plan.rows_read("jobs") <= COUNTED_MAX + OVERHEAD

    line = Connection(dsn, name="tests")
    try:
        some = await sql.fetch(line, "tasks/failures", **of_run, limit=COUNTED_MAX, codes_max=1)
        every = await sql.fetch(line, "tasks/failures", **of_run, limit=TASKS, codes_max=50)
    finally:
        await line.close()
    assert [(row["code"], row["counted"]) for row in some] == [("common", COUNTED_MAX)]
    assert [(row["code"], row["tasks"]) for row in every] == [("common", 2_000), ("rare", 1_000)]
