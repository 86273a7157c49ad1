"""What a look for changes costs: it walks the newest jobs, whatever the history."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from coatcheck.core.queries import sql
from coatcheck.core.queries.jobs import LISTING
from coatcheck.products.speech.repository import sql as speech_sql
from tests.db.rows import recorded

FIRST = UUID(int=0)
WALKED = 100
HISTORY = 20_000


def nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(node for child in plan.get("Plans", ()) for node in nodes(child))]


@pytest.mark.parametrize("statement", ["org_jobs/changes", "changes"])
async def test_a_look_reads_no_more_rows_than_it_walks(dsn: str, statement: str) -> None:
    connection = await asyncpg.connect(dsn, server_settings=LISTING)
    try:
        await connection.execute(
            recorded(
                "INSERT INTO jobs (org_id, id, lane, failures_max, endpoint, flow, owner)"
                " SELECT 'o', ('019a0000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid,"
                " 'standard', 3, 'speech.post__generate', 'u', 'user:u'"
                f" FROM generate_series(1, {HISTORY}) AS n"
            )
        )
        await connection.execute(
            "INSERT INTO generations (org_id, id, user_id, job_id, voice_id, language, text)"
            " SELECT org_id, id, 'u', id, id, 'en', 'Hello.' FROM jobs"
        )
        await connection.execute("ANALYZE")
        known = await connection.fetchval("SELECT pg_current_snapshot()::text")
        window = {"since": known, "until": None, "after": FIRST, "limit": 50, "rows_max": WALKED}
        text, values = (
            speech_sql.bound(statement, org="o", user="u", characters_max=200, **window)
            if statement == "changes"
            else sql.bound(statement, org="o", reader=None, **window)
        )
        explained = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}", *values)
    finally:
        await connection.close()
    plan = nodes(json.loads(explained)[0]["Plan"])
    assert not [node for node in plan if node["Node Type"] == "Seq Scan"]
    read = sum(
        node["Actual Rows"] * node["Actual Loops"] for node in plan if "Scan" in node["Node Type"]
    )
    assert read <= 10 * WALKED
