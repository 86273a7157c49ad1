"""Lists of all jobs read so much and no more, whatever the history."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coatcheck.core import Engine, org_jobs
from coatcheck.core.org_jobs import OrgJobRepository
from coatcheck.core.queries import sql
from coatcheck.domain.ids import new_id
from coatcheck.domain.listing import PageQuery
from coatcheck.domain.org_jobs import LIVE, UNSUCCESSFUL, OrgJobFilter
from coatcheck.domain.states import State
from coatcheck.settings import Settings
from tests.db.edge_guard import AsyncpgConnection
from tests.db.plans import Plan, SentStatements
from tests.db.rows import ORG, put_job, put_queue
from tests.db.test_listing_plan import put_ended

HISTORY = 30_000
MINE = 10
LIMIT = 5
STEP = org_jobs.FIRST_STEP_ROWS


@pytest.fixture
async def engine(dsn: str, tmp_path: Path) -> AsyncIterator[Engine]:
    settings = Settings(database_url=dsn, blob_url=(tmp_path / "blobs").as_uri())
    async with Engine(settings) as started:
        yield started


async def test_a_page_reads_what_it_walks_over_and_what_is_rare_has_an_index_of_its_own(
    engine: Engine, connection: AsyncpgConnection, sent: SentStatements
) -> None:
    jobs = engine.extension(OrgJobRepository)

    async def plan_of(way: str, wanted: OrgJobFilter) -> Plan:
        """The plan of the first step of the walk."""
        await jobs.page(wanted, PageQuery(limit=LIMIT))
        return await sent.plan(sql, f"org_jobs/{way}")

    for state in (State.FAILED, State.CANCELLED, State.RETRYING, State.PROCESSING, State.QUEUED):
        for _ in range(MINE):
            await put_job(connection, state, id=new_id())
    await put_queue(connection, 2_000, org="busy")
    await put_ended(connection, HISTORY)  # all of it newer

    everything = await plan_of("walk", OrgJobFilter(org=ORG))
    assert everything.sequential_scans("jobs") == 0
    assert everything.rows_read("jobs") <= STEP + LIMIT + 1

    nothing = await plan_of("walk", OrgJobFilter(org=ORG, error_code="rare"))
    assert nothing.rows_read("jobs") <= STEP

    failed = OrgJobFilter(org=ORG, states=UNSUCCESSFUL)
    unsuccessful = await plan_of("walk_unsuccessful", failed)
    assert unsuccessful.indexes("unsuccessful_jobs") == {"unsuccessful_jobs_pkey"}
    assert unsuccessful.rows_read("unsuccessful_jobs") <= 2 * MINE
    assert unsuccessful.indexes("jobs") <= {"jobs_pkey", "jobs_retries"}
    assert unsuccessful.rows_read("jobs") <= 2 * MINE + 2 * (LIMIT + 1)

    live = await plan_of("walk_live", OrgJobFilter(org=ORG, states=LIVE))
    assert live.sequential_scans("jobs") == 0
    assert "jobs_pkey" in live.indexes("jobs")
    assert live.sequential_scans("queue") == 0
    assert live.rows_read("jobs") <= 2 * 3 * MINE + LIMIT + 1

    page = await jobs.page(failed, PageQuery(limit=2 * MINE))
    assert len(page.items) == 2 * MINE
    assert page.following is None
    rare = await jobs.page(OrgJobFilter(org=ORG, error_code="rare"), PageQuery(limit=LIMIT))
    assert rare.items == []
    assert rare.following is not None, "there is more to look at"


async def test_a_long_queue_is_walked_in_order_and_all_of_it_is_found(
    engine: Engine, connection: AsyncpgConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(org_jobs, "LIVE_ROWS_MAX", 20)
    await put_queue(connection, 50)
    seen = []
    after = None
    while True:
        page = await engine.extension(OrgJobRepository).page(
            OrgJobFilter(org=ORG, states=LIVE), PageQuery(after=after, limit=20)
        )
        seen += [job.uuid for job in page.items]
        after = page.following
        if after is None:
            break
    assert len(seen) == len(set(seen)) == 50
    assert seen == sorted(seen, reverse=True)
