"""What the hot statements cost does not grow with history: at a million finished jobs, too."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from coatcheck.core.queries import reports, sql
from coatcheck.db.connection import PINNED_PLANS, Connection
from coatcheck.db.database import Database
from coatcheck.domain.limits import CRASHES_MAX, CRASHES_TOGETHER_MAX
from coatcheck.domain.states import State
from tests.db.claimer import KEEP_COMPLETED_SECONDS, KEEP_FAILED_SECONDS, Claimer
from tests.db.edge_guard import AsyncpgConnection, unguarded
from tests.db.events_on_a_database import fall_silent
from tests.db.plans import Plan, columns, explain
from tests.db.rows import ENDPOINT, put_job, put_queue, recorded

FINISHED = 1_000_000
ORGS = 20
ROOM = 100
OF_EACH_KIND = 50
"""Jobs that are due, late, expired, held: what each statement has to find."""

LIVE = 2 * ROOM + 3 * OF_EACH_KIND
"""Jobs that have not ended."""

LONG_AGO = datetime.now(UTC) - timedelta(hours=1)

LED_TO = ("jobs", "queue", "postponed", "start_deadlines")
"""The table, and those that name its jobs."""

FINISHED_UNKNOWN = 3_000
"""History of which nobody has told the planner yet."""

GROWTH_MAX = 1.1
PAGES_MORE_PER_ROW_MAX = 3
"""With a million rows the primary key is a level deeper: a page more to find a row in it, to find
it again to change it, and to enter what it was changed to."""

TWICE_DEEPER = {"claim", "complete", "expire"}
PAGES_MORE_PER_DEEPER_ROW_MAX = PAGES_MORE_PER_ROW_MAX + 2
"""Who changes jobs also enters them in jobs_listed: one page at first, two levels more at a
million. The claim finds jobs by the primary key, which was one page at first."""


@dataclass(frozen=True)
class Statement:
    """A statement as its actor sends it, the index it must go by, and what it has to find."""

    line: Connection
    text: str
    arguments: list[Any]
    index: str
    finds: int
    claims: str = ""
    """The index of claims, if that is where it looks first."""

    async def plan(self) -> Plan:
        return await self.line.run(lambda it: explain(it, self.text, *self.arguments))


@pytest.fixture
async def statements(
    dsn: str, connection: AsyncpgConnection, worker: Claimer
) -> dict[str, Statement]:
    """Every hot statement of the worker and of upkeep, with work for each to find."""
    for number in range(ORGS):
        await put_queue(connection, 2 * ROOM // ORGS, org=f"org {number}")
    held = [
        await put_job(connection, State.PROCESSING, run_deadline=LONG_AGO)
        for _ in range(OF_EACH_KIND)
    ]
    await reports.add_events(worker.line, [(job, "log", b"{}") for job in held], write_id=1)
    for _ in range(OF_EACH_KIND):
        await put_job(connection, State.STAGED, run_at=LONG_AGO)
        await put_job(connection, State.QUEUED, start_deadline=LONG_AGO, endpoint="unserved")
        await put_job(connection, State.FAILED, expires_at=LONG_AGO)
    await fall_silent(worker)

    work = worker.line
    nothing: list[Any] = [[], [], [], [], [], []]
    done = columns([(job.org, job.uuid, job.lease, b"1", 0.5, 2) for job in held])
    orgs, ids, leases = columns([(job.org, job.uuid, job.lease) for job in held])
    those = {"orgs": orgs, "ids": ids, "leases": leases}
    claim = worker.order(ROOM).arguments(limited=False)
    no_claim = worker.order(0).arguments(limited=False)
    keep = KEEP_FAILED_SECONDS
    n = OF_EACH_KIND
    database = Database.of_server(dsn)
    upkeep, reads = database.maintenance, database.read
    looks = asks = database.pooled("overview and explain", server_settings=PINNED_PLANS)
    waiting = await connection.fetchval(
        "SELECT id FROM jobs WHERE org_id = 'org 0' AND state = 'queued' ORDER BY id DESC LIMIT 1"
    )
    one = {"org": "org 0", "job": waiting}
    flows = {"flows_max": 500, "of_a_flow_min": 200, "count_max": 200_000}
    return {
        "flows": Statement(
            looks, *sql.bound("overview/flows", org="org 0", **flows), "queue_order", ROOM
        ),
        "all flows": Statement(
            looks, *sql.bound("overview/flows", org="*", **flows), "queue_order", LIVE
        ),
        "held": Statement(
            looks, *sql.bound("overview/held", org="acme"), "jobs_pkey", n, "claims_held"
        ),
        "postponed": Statement(
            looks, *sql.bound("overview/postponed", org="acme", rows_max=1000), "postponed_pkey", n
        ),
        "all postponed": Statement(
            looks, *sql.bound("overview/postponed_of_all", rows_max=1000), "postponed_due", n
        ),
        "workers": Statement(
            looks, *sql.bound("workers/list", rows_max=100), "jobs_pkey", n, "claims_held"
        ),
        "explain": Statement(asks, *sql.bound("explain/explain", **one), "jobs_pkey", n),
        "ahead": Statement(
            asks,
            *sql.bound("explain/ahead", **one, jobs_max=10_000, flows_max=50),
            "queue_order",
            ROOM,
        ),
        "holders": Statement(
            asks,
            *sql.bound("explain/holders", org="acme", scope="org", name="", rows_max=50),
            "jobs_pkey",
            n,
            "claims_pkey",
        ),
        "runs of late": Statement(
            asks,
            *sql.bound(
                "explain/recent_runs",
                org="org 0",
                service="demo",
                owner="",
                endpoint=ENDPOINT,
                flow=None,
                lane="standard",
                line="",
                rows_max=n,
                walked_max=n,
            ),
            "jobs_listed",
            n,
        ),
        "depth": Statement(reads, sql("jobs/depth"), [], "jobs_pkey", LIVE, "claims_held"),
        "claim": Statement(
            work,
            sql("claims/exchange"),
            [*claim, *nothing, KEEP_COMPLETED_SECONDS, []],
            "queue_order",
            ROOM,
        ),
        "complete": Statement(
            work,
            sql("claims/exchange"),
            [*no_claim, *done, KEEP_COMPLETED_SECONDS, []],
            "jobs_pkey",
            n,
        ),
        "settle": Statement(
            work,
            *sql.bound(
                "claims/settle",
                **those,
                events=["retry"] * n,
                error_codes=["x"] * n,
                error_messages=["y"] * n,
                delay_seconds=[1.0] * n,
                ran_seconds=[0.5] * n,
                keep_seconds=keep,
            ),
            "jobs_pkey",
            n,
        ),
        "start": Statement(
            work, *sql.bound("claims/mark_started", **those, ran_seconds=[0.5] * n), "jobs_pkey", n
        ),
        "heartbeat": Statement(
            work, *sql.bound("workers/heartbeat", boot=worker.boot), "jobs_pkey", n, "claims_held"
        ),
        "stage": Statement(
            upkeep, *sql.bound("maintenance/queue_due", rows_max=500), "postponed_due", n
        ),
        "next due": Statement(upkeep, sql("maintenance/next_due"), [], "postponed_due", 1),
        "rescue": Statement(
            upkeep,
            *sql.bound(
                "maintenance/rescue",
                crashes_max=CRASHES_MAX,
                keep_seconds=keep,
                rows_max=200,
                crashes_together_max=CRASHES_TOGETHER_MAX,
                delays=[5.0],
                jitter=1.0,
            ),
            "jobs_pkey",
            n,
            "claims_held",
        ),
        "overrun": Statement(
            upkeep,
            *sql.bound(
                "maintenance/fail_overrun", slack_seconds=0, keep_seconds=keep, rows_max=200
            ),
            "jobs_pkey",
            n,
            "claims_held",
        ),
        "expire": Statement(
            upkeep,
            *sql.bound("maintenance/expire_waiting", keep_seconds=keep, rows_max=200),
            "start_deadlines_due",
            n,
        ),
        "prune": Statement(upkeep, *sql.bound("maintenance/prune", rows_max=n), "jobs_pkey", n),
    }


async def finish(connection: AsyncpgConnection, count: int) -> None:
    """History: ``count`` jobs that have ended and are kept."""
    async with unguarded(connection):
        await connection.execute(
            recorded(
                """
                INSERT INTO jobs (org_id, id, lane, state, failures_max, endpoint, flow, result,
                                  finished_at, expires_at)
                SELECT 'org ' || n % $1::integer, lpad(to_hex(n), 32, '0')::uuid, 'standard',
                       'completed', 3, 'demo.post__work', '', '{"ok":true}', now(),
                       now() + interval '1 day' + n / 500 * interval '1 second'
                FROM generate_series(1, $2::integer) AS n
                """
            ),
            ORGS,
            count,
            timeout=120,
        )


def finds_expiries_by_index(plan: Plan) -> bool:
    """What is due by its time, and what it then deletes or keeps by the key."""
    return (
        plan.indexes("job_expiries") == {"job_expiries_due", "job_expiries_pkey"}
        and plan.sequential_scans("job_expiries") == 0
    )


@pytest.mark.slow
async def test_a_million_finished_jobs_make_no_hot_statement_read_more(
    statements: dict[str, Statement], connection: AsyncpgConnection
) -> None:
    before = {name: await statement.plan() for name, statement in statements.items()}
    await connection.execute("VACUUM jobs")  # what the undone statements left behind
    await finish(connection, FINISHED)
    after = {name: await statement.plan() for name, statement in statements.items()}

    assert {name: plan.sequential_scans("jobs") for name, plan in after.items()} == dict.fromkeys(
        after, 0
    )
    for name, statement in statements.items():
        assert statement.index in after[name].indexes(*LED_TO), name
        assert statement.claims in {"", *after[name].indexes("claims")}, name
        assert after[name].sequential_scans("claims") == 0, name
    # It finds a row, and finds it again to change it; the claim also asks who has work.
    read = {name: plan.rows_read("jobs") for name, plan in after.items()}
    bound = {name: 2 * statement.finds + 2 * ORGS for name, statement in statements.items()}
    assert {name: rows for name, rows in read.items() if rows > bound[name]} == {}
    pages = {name: (before[name].buffers, after[name].buffers) for name in statements}
    assert finds_expiries_by_index(after["prune"])
    assert after["prune"].rows_read("job_expiries") <= 2 * OF_EACH_KIND
    more = {
        name: statement.finds
        * (PAGES_MORE_PER_DEEPER_ROW_MAX if name in TWICE_DEEPER else PAGES_MORE_PER_ROW_MAX)
        for name, statement in statements.items()
    }
    assert {
        name: (empty, full)
        for name, (empty, full) in pages.items()
        if full > GROWTH_MAX * empty + more[name]
    } == {}


async def test_a_backlog_makes_no_claim_read_more(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    """However many jobs wait, finding the flows is one look at the index for each."""
    await put_queue(connection, 50_000, org="busy")
    await put_queue(connection, 10, org="quiet")
    arguments = [*worker.order(10).arguments(limited=False), [], [], [], [], [], [], 60, []]
    plan = await worker.line.run(lambda it: explain(it, sql("claims/exchange"), *arguments))
    assert plan.indexes("jobs", "queue") == {"queue_order", "queue_pkey", "jobs_pkey"}
    assert plan.sequential_scans("jobs") == plan.sequential_scans("queue") == 0
    assert plan.rows_read("jobs") <= 2 * 10
    # A look for each flow, and the rows that are locked and then written.
    assert plan.rows_read("queue") <= 3 * 10 + 4


async def test_a_statement_goes_by_its_index_before_anything_is_known_of_the_table(
    statements: dict[str, Statement], connection: AsyncpgConnection
) -> None:
    """Nobody has counted the rows yet, so PostgreSQL guesses; the plan must not depend on it."""
    await finish(connection, FINISHED_UNKNOWN)
    known = "SELECT count(*) FROM pg_stats WHERE tablename = 'jobs'"
    assert await connection.fetchval(known) == 0
    for name, statement in statements.items():
        plan = await statement.plan()
        assert statement.index in plan.indexes(*LED_TO), name
        assert plan.sequential_scans("jobs") == 0, name
        assert plan.rows_read("jobs") <= 2 * statement.finds + 2 * ORGS, name
        assert name != "prune" or finds_expiries_by_index(plan)
        assert statement.claims in {"", *plan.indexes("claims")}, name
        assert plan.sequential_scans("claims") == 0, name
