"""Who finds jobs by `postponed` reads these, and not the history, whatever the planner believes.

The history has been analysed before the jobs were put off, so they seem to be few among it; the
rows of `postponed` have been analysed since, so looking their jobs up seems to cost more than it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

import pytest

from coatcheck.core.queries import sql
from coatcheck.core.queries.jobs import LISTING
from coatcheck.db.connection import PINNED_PLANS
from coatcheck.db.queries import Queries
from coatcheck.products.batches.queries import sql as batches
from coatcheck.products.llm.queries import sql as llm
from tests.db.edge_guard import AsyncpgConnection, unguarded
from tests.db.plans import explain_query
from tests.db.rows import ENDPOINT, ORG, recorded

HISTORY: Final = 6_000
POSTPONED: Final = 2_000
WANTED: Final = 10
RUN: Final = UUID(int=7)
_LIST: Final[Mapping[str, Any]] = {
    "org": ORG,
    "services": ["demo"],
    "states": ["retrying"],
    "owner": "user:a",
    "endpoints": [ENDPOINT],
    "queue_key_prefix": None,
    "lane": None,
    "created_after": None,
    "created_before": None,
    "above": UUID("01000000-0000-0000-0000-000000000000"),
    "before": UUID("02000000-0000-0000-0000-000000000000"),
    "rows_max": WANTED,
    "limit": WANTED,
    "offset": 0,
}


@pytest.fixture
async def planner(connection: AsyncpgConnection) -> AsyncpgConnection:
    """A connection to a database with such statistics."""
    for table in ("jobs", "postponed"):
        await connection.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = false)")
    async with unguarded(connection):
        await connection.execute(
            recorded(
                """
                INSERT INTO jobs (org_id, id, lane, state, failures_max, endpoint, flow,
                                  finished_at, expires_at)
                SELECT $1, ('01a1f5' || lpad(to_hex(n), 26, '0'))::uuid, 'standard', 'completed', 3,
                       $2, '', now(), now() + interval '1 day'
                FROM generate_series(1, $3::integer) AS n
                """
            ),
            ORG,
            ENDPOINT,
            HISTORY,
        )
        await connection.execute("VACUUM ANALYZE jobs")
        await connection.execute(
            recorded(
                """
                INSERT INTO jobs (org_id, id, lane, state, failures_max, endpoint, flow, run_at,
                                  error_code, run_id, task_index)
                SELECT $1, ('01a1f6' || lpad(to_hex(n), 26, '0'))::uuid, 'standard', 'retrying', 3,
                       $2, '', now() + interval '1 hour', 'target_unreachable',
                       CASE WHEN n % 2 = 0 THEN $4::uuid END, CASE WHEN n % 2 = 0 THEN n END
                FROM generate_series(1, $3::integer) AS n
                """
            ),
            ORG,
            ENDPOINT,
            POSTPONED,
            RUN,
        )
        await connection.execute("VACUUM ANALYZE postponed")
    return connection


@pytest.mark.parametrize(
    ("queries", "name", "arguments", "settings", "rows_max"),
    [
        (
            batches,
            "removal/cancel_waiting",
            {"org": ORG, "run": RUN, "rows_max": WANTED},
            PINNED_PLANS,
            # To find it, and to find it again to change it.
            2 * WANTED,
        ),
        (
            batches,
            "tasks/scheduled",
            {"org": ORG, "run": RUN, "after": -1, "limit": WANTED, "result_bytes_max": 1},
            PINNED_PLANS,
            WANTED,
        ),
        (sql, "explain/next_of_run", {"org": ORG, "run": RUN}, PINNED_PLANS, 1),
        (llm, "retry_now", {"endpoints": [ENDPOINT], "rows_max": WANTED}, {}, 2 * WANTED),
        (llm, "retry_now", {"endpoints": [ENDPOINT], "rows_max": WANTED}, PINNED_PLANS, 2 * WANTED),
        (sql, "lists/page_of_services", _LIST, LISTING, POSTPONED + WANTED),
        (sql, "maintenance/queue_due", {"rows_max": WANTED}, PINNED_PLANS, 2 * WANTED),
    ],
)
async def test_only_postponed_jobs_are_read(
    planner: AsyncpgConnection,
    queries: Queries,
    name: str,
    arguments: Mapping[str, Any],
    settings: Mapping[str, str],
    rows_max: int,
) -> None:
    for setting, value in settings.items():
        await planner.execute(f"SET {setting} = {value}")
    plan = await explain_query(planner, queries, name, **arguments)
    assert plan.rows_read("jobs") <= rows_max
