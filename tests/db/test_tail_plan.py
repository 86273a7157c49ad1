"""What following jobs reads: what is new of each, by its key, however much they said before."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from coatcheck.core.queries import sql
from coatcheck.db.connection import PINNED_PLANS
from coatcheck.domain.ids import new_id
from tests.db.edge_guard import AsyncpgConnection
from tests.db.plans import columns, explain
from tests.db.rows import recorded

ORG = "acme"
JOBS = 50
EVENTS_OF_EACH = 400


@pytest.fixture
async def connection(dsn: str) -> AsyncIterator[AsyncpgConnection]:
    """A connection with the plans that the reader of output has."""
    opened = await asyncpg.connect(dsn, server_settings=dict(PINNED_PLANS))
    yield opened
    await opened.close()


async def test_only_what_is_new_is_read(connection: AsyncpgConnection) -> None:
    jobs = [new_id() for _ in range(JOBS)]
    await connection.execute(
        recorded("""
        INSERT INTO jobs (org_id, id, lane, endpoint, flow, failures_max, payload, run_at, state)
        SELECT $1, id, 'urgent', 'llm.post__chat', 'llama3:latest', 3, '{}', now(), 'queued'
        FROM unnest($2::uuid[]) AS made (id)
        """),
        ORG,
        jobs,
    )
    await connection.execute(
        """
        INSERT INTO job_events (org_id, job_id, kind, data, write_id)
        SELECT $1, id, 'json', '{}', 1
        FROM generate_series(1, $3::integer) AS n CROSS JOIN unnest($2::uuid[]) AS made (id)
        ORDER BY n
        """,
        ORG,
        jobs,
        EVENTS_OF_EACH,
    )
    await connection.execute("ANALYZE jobs, job_events")
    last: int = await connection.fetchval("SELECT max(seq) FROM job_events")
    followed = [(ORG, job, last - JOBS) for job in jobs[:4]]
    plan = await explain(connection, sql("reports/tail"), *columns(followed), 200, 1_000_000)
    assert plan.rows_read("job_events") == 4
    assert plan.rows_read("jobs") == 4
    assert plan.indexes("job_events") == {"job_events_pkey"}
    assert plan.sequential_scans("jobs") == plan.sequential_scans("job_events") == 0
    whole = [(ORG, jobs[0], 0)]
    page = await explain(connection, sql("reports/tail"), *columns(whole), 200, 1_000_000)
    assert page.rows_read("job_events") == 200
