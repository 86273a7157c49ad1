"""Lists and backlogs read what they show, whatever others have left in the table."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from coatcheck.core import Engine
from coatcheck.core.queries import sql
from coatcheck.db.migrate import installed_packages
from coatcheck.domain.catalogue import UPSTREAM_ENDPOINT
from coatcheck.domain.ids import new_id
from coatcheck.domain.states import State
from coatcheck.settings import Settings
from tests.db.edge_guard import AsyncpgConnection, unguarded
from tests.db.plans import Plan, SentStatements
from tests.db.rows import ENDPOINT, ORG, put_job, put_queue

OTHERS = 60_000
MINE = 10
LIMIT = 5
MOST = 100
ENDS = (State.COMPLETED, State.FAILED, State.CANCELLED)


@pytest.fixture
async def engine(dsn: str, tmp_path: Path) -> AsyncIterator[Engine]:
    settings = Settings(database_url=dsn, blob_url=(tmp_path / "blobs").as_uri())
    async with Engine(settings) as started:
        yield started


async def put_ended(connection: AsyncpgConnection, count: int, **columns: str) -> None:
    """Newer jobs of others: with ids that come after those of today so far."""
    row = {"owner": "user:bob", "endpoint": ENDPOINT, "flow": "", **columns}
    async with unguarded(connection):
        await connection.execute(
            """
            INSERT INTO jobs (org_id, id, lane, state, failures_max, endpoint, flow, owner,
                              finished_at, expires_at)
            SELECT $1,
                   overlay(
                       replace(gen_random_uuid()::text, '-', '') PLACING
                       lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint + 3600000), 12, '0')
                       FROM 1
                   )::uuid,
                   'standard', 'completed', 3, $2, $3, $4, now(), now() + interval '1 day'
            FROM generate_series(1, $5::integer)
            """,
            ORG,
            row["endpoint"],
            row["flow"],
            row["owner"],
            count,
        )
    await connection.execute("ANALYZE jobs")


async def plans(engine: Engine, sent: SentStatements, **wanted: Any) -> dict[str, Plan]:
    """The plans of the statements of a page: its jobs, and how many there are in all."""
    found = {}
    for name in ("lists/page_of_services", "lists/page_of_services_total"):
        await engine.page(org=ORG, limit=LIMIT, **wanted)
        found[name] = await sent.plan(sql, name)
    return found


@pytest.mark.parametrize("states", [None, [State.FAILED]])
@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ({}, {}),  # other owners
        ({}, {"endpoint": "elsewhere.post__work"}),  # another service
        (
            {"endpoint": UPSTREAM_ENDPOINT, "flow": "docs.v1.get__a"},
            {"endpoint": UPSTREAM_ENDPOINT, "flow": "other.v1.get__a"},
        ),
    ],
)
async def test_a_list_reads_an_owner_s_jobs_of_a_service_and_little_more(
    mine: dict[str, str],
    theirs: dict[str, str],
    states: list[State] | None,
    engine: Engine,
    connection: AsyncpgConnection,
    sent: SentStatements,
) -> None:
    for state in (State.COMPLETED, State.FAILED, State.QUEUED, State.RETRYING, State.PROCESSING):
        for _ in range(MINE):
            await put_job(connection, state, owner="user:ann", id=new_id(), **mine)
    await put_ended(connection, OTHERS, **theirs)
    prefix = "docs." if "flow" in mine else None
    found = await plans(
        engine,
        sent,
        endpoints=[mine.get("endpoint", ENDPOINT)],
        queue_key_prefix=prefix,
        states=states,
        owner="user:ann",
    )
    for name, plan in found.items():
        assert plan.sequential_scans("jobs") == 0, name
        if states is None:
            assert "jobs_listed" in plan.indexes("jobs"), name
            assert plan.rows_read("unsuccessful_jobs") == 0, name
        else:
            assert plan.indexes("unsuccessful_jobs") == {"unsuccessful_jobs_listed"}, name
            assert plan.rows_read("unsuccessful_jobs") <= MINE, name
        assert plan.rows_read("queue") == 0, name
        assert plan.rows_read("jobs") <= 6 * MINE + LIMIT, name


@pytest.mark.parametrize(
    "states",
    [
        None,
        [State.COMPLETED],
        [State.FAILED],
        [State.FAILED, State.CANCELLED],
        [State.COMPLETED, State.FAILED, State.CANCELLED],
        [State.COMPLETED, State.QUEUED, State.PROCESSING],
        [State.CANCELLED, State.QUEUED, State.RETRYING],
    ],
)
@pytest.mark.parametrize("owner", [None, "user:ann"])
async def test_a_list_has_each_job_of_its_states_once_and_newest_first(
    owner: str | None,
    states: list[State] | None,
    engine: Engine,
    connection: AsyncpgConnection,
    sent: SentStatements,
) -> None:
    expected = []
    for _ in range(3):
        for state in (*ENDS, State.QUEUED, State.RETRYING, State.PROCESSING):
            for whose in ("user:ann", "*", "user:bob"):
                job = await put_job(connection, state, owner=whose)
                if (states is None or state in states) and (owner is None or whose != "user:bob"):
                    expected.append(job.uuid)
            await put_job(connection, state, owner="user:ann", endpoint="elsewhere.post__work")
    expected.sort(reverse=True)
    asked: dict[str, Any] = {"endpoints": [ENDPOINT], "states": states, "owner": owner}
    whole = await engine.page(org=ORG, limit=200, **asked)
    await sent.plan(sql, "lists/page_of_services")  # it was sent
    assert [job.uuid for job in whole.items] == expected
    assert whole.total == len(expected)
    paged, last = [], None
    while page := (await engine.page(org=ORG, limit=4, after=last, **asked)).items:
        paged += [job.uuid for job in page]
        last = page[-1].id
    assert paged == expected


@pytest.mark.parametrize("state", [State.COMPLETED, State.FAILED])
async def test_a_list_of_everybody_s_jobs_reads_those_of_its_service(
    state: State, engine: Engine, connection: AsyncpgConnection, sent: SentStatements
) -> None:
    owners = ("", "user:ann", "user:bob")
    for owner in owners:
        for _ in range(MINE):
            await put_job(connection, state, owner=owner, id=new_id())
    await put_ended(connection, OTHERS, endpoint="elsewhere.post__work")
    for name, plan in (await plans(engine, sent, endpoints=[ENDPOINT])).items():
        assert plan.sequential_scans("jobs") == 0, name
        assert plan.rows_read("jobs") <= len(owners) * (MINE + 1) + LIMIT, name
    await engine.page(org=ORG, endpoints=[ENDPOINT, "elsewhere.post__work"])
    counted = await sent.plan(sql, "lists/owners")
    assert counted.indexes("jobs") == {"jobs_listed"}
    assert counted.rows_read("jobs") <= 2 * len(owners)
    page = await engine.page(org=ORG, endpoints=[ENDPOINT])
    assert page.total == len(owners) * MINE


@pytest.mark.parametrize("statement", ["lists/page", "lists/page_total"])
async def test_times_bound_what_a_list_of_all_jobs_reads(
    statement: str, engine: Engine, connection: AsyncpgConnection, sent: SentStatements
) -> None:
    for _ in range(MINE):
        await put_job(connection, State.COMPLETED, id=new_id())
    await put_ended(connection, OTHERS)  # their ids are from an hour later on
    hours_ago = datetime.now(UTC) - timedelta(hours=3)
    # With an offset, nothing found does not mean that there is nothing: the total is read, too.
    await engine.page(org=ORG, limit=LIMIT, offset=1, created_before=hours_ago)
    plan = await sent.plan(sql, statement)
    assert plan.sequential_scans("jobs") == 0
    assert plan.rows_read("jobs") == 0


async def test_a_backlog_is_counted_along_the_queue_and_no_further_than_asked(
    engine: Engine, connection: AsyncpgConnection, sent: SentStatements
) -> None:
    await put_ended(connection, OTHERS)
    await put_queue(connection, 2_000, org="busy")
    await put_queue(connection, 2_000)
    endpoints = [ENDPOINT, "demo.post__other"]
    assert await engine.backlog(ORG, endpoints, MOST) == MOST
    plan = await sent.plan(sql, "jobs/backlog")
    assert plan.indexes("jobs", "queue") == {"queue_order"}
    assert plan.rows_read("queue") <= MOST


async def test_an_organisations_backlog_is_counted_along_its_own_queue(
    engine: Engine, connection: AsyncpgConnection, sent: SentStatements
) -> None:
    endpoints = ["demo.post__a", "demo.post__b", "demo.post__c"]
    await put_ended(connection, OTHERS)
    for endpoint in endpoints:
        await put_queue(connection, 2_000, org="busy", endpoint=endpoint)
        await put_queue(connection, 2_000, endpoint=endpoint)
    assert await engine.backlog(ORG, None, MOST) == MOST
    plan = await sent.plan(sql, "jobs/org_backlog")
    assert plan.indexes("jobs", "queue") == {"queue_pkey"}
    assert plan.rows_read("queue") <= MOST
    assert await engine.backlog("nobody", None, MOST) == 0


def test_the_index_of_lists_knows_the_endpoint_of_upstreams() -> None:
    (core, *_) = installed_packages()
    jobs_schema = core.steps[0].statements
    assert f"CASE endpoint WHEN '{UPSTREAM_ENDPOINT}'" in jobs_schema
