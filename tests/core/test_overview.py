"""What happened lately and what waits now, as people see it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

import pytest

from coatcheck.core import Engine, process_metrics
from coatcheck.core.overview import POINTS_MAX, OverviewView
from coatcheck.core.process_metrics import JobStatsRecorder
from coatcheck.core.queries import roll_ups
from coatcheck.db.connection import Connection
from coatcheck.domain.durations import quantile
from coatcheck.domain.lanes import Lane
from coatcheck.domain.limits import ROLL_UPS_KEPT_SECONDS
from coatcheck.domain.states import State
from coatcheck.maintenance.retention import StatsPruner
from coatcheck.settings import Settings
from coatcheck.telemetry.job_stats import (
    EVERYBODY,
    OTHER_CODES,
    Counted,
    JobCounts,
    JobStats,
    NoJobStats,
    job_stats_of,
)
from tests.db.edge_guard import AsyncpgConnection
from tests.db.rows import put_job, put_queue


@pytest.fixture
async def line(dsn: str) -> AsyncIterator[Connection]:
    opened = Connection(dsn, name="test")
    yield opened
    await opened.close()


async def test_what_two_processes_counted_is_added_up_by_minute_and_hour_and_over_all(
    engine: Engine, line: Connection
) -> None:
    one, other = JobStats(), JobStats()
    one.submitted({("acme", "standard"): 3, ("other", "standard"): 2})
    one.moved("acme", "standard", State.FAILED, code="broke", ran_seconds=2.0)
    other.submitted({("acme", "standard"): 4, ("acme", "bulk"): 1})
    other.moved("acme", "standard", State.FAILED, code="broke", ran_seconds=0.1)
    other.moved("acme", "standard", State.RETRYING)
    other.rescued("acme", "standard", State.QUEUED, "worker_lost")
    for counted in (one, other):
        await roll_ups.add(line, counted.take())
    for minutes in (60, 1_440, 43_200):
        acme = await engine.overviews.read("acme", minutes)
        everybody = await engine.overviews.read(EVERYBODY, minutes)
        assert totals(acme) == {"submitted": 8, "failed": 2, "retried": 1, "rescued": 1}
        assert totals(everybody) == {"submitted": 10, "failed": 2, "retried": 1, "rescued": 1}
        assert acme.failures == [("broke", 2)]
        runs = merged([point.runs for point in acme.series])
        assert sum(runs) == 2
        assert quantile(runs, 0.99) == pytest.approx(2.0, rel=0.25)


async def test_jobs_are_counted_from_their_submission_to_their_end(
    engine: Engine, settings: Settings
) -> None:
    for _ in range(3):
        await engine.submit("docs.post__analyze", org="acme")
    ticket = await engine.submit("docs.post__analyze", org="acme", lane=Lane.URGENT)
    await engine.submit("docs.post__analyze", org="acme", idempotency_key="once")
    await engine.submit("docs.post__analyze", org="acme", idempotency_key="once")
    await engine.cancel(ticket.id, org="acme")
    await engine.close()  # a process that ends adds what it has counted
    async with Engine(settings) as after:
        assert totals(await after.overviews.read("acme", 5)) == {"submitted": 5, "cancelled": 1}


async def test_what_could_not_be_added_is_added_later(dsn: str, line: Connection) -> None:
    nowhere = Connection("postgresql://127.0.0.1:1/none", name="nowhere")
    job_stats = job_stats_of(nowhere.database_url)
    job_stats.submitted({("acme", "standard"): 3})
    job_stats.moved("acme", "standard", State.FAILED, code="broke")
    await JobStatsRecorder(nowhere).flush()
    counted = job_stats.take()
    assert counted.jobs["acme", "standard"].submitted == 3
    assert counted.failures == {("acme", "broke"): 1}


async def test_a_flush_waits_for_what_another_keeper_is_adding(
    dsn: str, line: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    adding, goes_on = asyncio.Event(), asyncio.Event()
    add = roll_ups.add

    async def slow(line: Connection, counted: Counted) -> None:
        adding.set()
        await goes_on.wait()
        await add(line, counted)

    monkeypatch.setattr(roll_ups, "add", slow)
    keeper, its_sibling = JobStatsRecorder(line), JobStatsRecorder(line)
    job_stats_of(dsn).submitted({("acme", "standard"): 3})
    one = asyncio.create_task(keeper.flush())
    await adding.wait()
    another = asyncio.create_task(its_sibling.flush())
    asyncio.get_running_loop().call_soon(goes_on.set)
    await another
    rows = await line.fetch("SELECT submitted FROM job_roll_ups WHERE org_id = 'acme'")
    assert [row["submitted"] for row in rows] == [3, 3, 3]
    await one


async def test_codes_that_an_organisation_makes_up_without_end_are_counted_together() -> None:
    job_stats = JobStats()
    for number in range(1_000):
        job_stats.moved("acme", "standard", State.FAILED, code=f"code {number}")
    counted = job_stats.take()
    assert len(counted.failures) <= 201
    assert counted.failures["acme", OTHER_CODES] == 800
    assert sum(counted.failures.values()) == 1_000
    # Nor does the next flush begin anew: they would all be in the hour's row.
    job_stats.moved("acme", "standard", State.FAILED, code="code 1000")
    job_stats.moved("acme", "standard", State.FAILED, code="code 1")
    assert job_stats.take().failures == {("acme", OTHER_CODES): 1, ("acme", "code 1"): 1}


async def test_what_is_not_to_be_counted_leaves_nothing_behind() -> None:
    job_stats = NoJobStats()
    job_stats.submitted({("acme", "standard"): 3})
    job_stats.rescued("acme", "standard", State.FAILED, "worker_lost")
    assert not job_stats.take()


async def test_what_is_being_added_when_the_process_ends_is_added_once(
    dsn: str, line: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    added, goes_on = asyncio.Event(), asyncio.Event()
    add = roll_ups.add

    async def answered_late(line: Connection, counted: Counted) -> None:
        await add(line, counted)
        added.set()
        await goes_on.wait()

    monkeypatch.setattr(roll_ups, "add", answered_late)
    monkeypatch.setattr(process_metrics, "FLUSH_SECONDS", 0.01)
    keeper = JobStatsRecorder(line)
    job_stats_of(dsn).submitted({("acme", "standard"): 3})
    keeper.start()
    await added.wait()
    # Once the keeper has been told to stop, and waits.
    asyncio.get_running_loop().call_soon(goes_on.set)
    await keeper.stop()
    rows = await line.fetch("SELECT submitted FROM job_roll_ups WHERE org_id = 'acme'")
    assert [row["submitted"] for row in rows] == [3, 3, 3]


async def test_the_series_has_no_gaps_and_never_more_points_than_a_chart_shows(
    engine: Engine,
) -> None:
    for minutes in (5, 60, 120, 238, 240, 1_440, 4_300, 10_080, 43_200):
        seen = await engine.overviews.read("acme", minutes)
        moments = [point.since for point in seen.series]
        step = timedelta(seconds=seen.interval_seconds)
        assert 5 <= len(moments) <= POINTS_MAX
        assert [*moments[1:]] == [each + step for each in moments[:-1]]
        assert moments[-1] <= seen.generated_at < moments[-1] + step
        assert seen.generated_at - moments[0] >= timedelta(minutes=minutes) * 0.95


async def test_what_waits_and_runs_is_shown_by_lane_and_by_queue(
    engine: Engine, connection: AsyncpgConnection
) -> None:
    await put_queue(connection, 7, org="acme", flow="large")
    await put_queue(connection, 2, org="acme", flow="small")
    await put_queue(connection, 3, org="acme", lane=Lane.URGENT, endpoint="other.post__work")
    await put_queue(connection, 9, org="aaa")
    await put_queue(connection, 9, org="zzz", flow="large")
    await put_job(connection, State.PROCESSING, org_id="acme", flow="large")
    await put_job(
        connection, State.PROCESSING, org_id="acme", flow="large", endpoint="other.post__work"
    )
    await put_job(connection, State.RETRYING, org_id="acme")
    await put_job(connection, State.STAGED, org_id="acme")
    await put_job(connection, State.STAGED, org_id="aaa")
    seen = await engine.overviews.read("acme", 60)
    urgent, standard, bulk = seen.lanes
    assert (standard.queued, standard.staged, standard.retrying, standard.held) == (9, 1, 1, 2)
    assert standard.is_exact
    assert standard.oldest_queued_seconds is not None
    assert standard.oldest_queued_seconds == pytest.approx(3_600, abs=60)
    assert (urgent.queued, bulk.queued, bulk.oldest_queued_seconds) == (3, 0, None)
    assert [(each.queue_key, each.lane, each.queued, each.held) for each in seen.queues] == [
        ("large", "standard", 7, 1),
        ("", "urgent", 3, 0),
        ("small", "standard", 2, 0),
    ]
    everybody = await engine.overviews.read(EVERYBODY, 60)
    assert everybody.lanes[1].queued == 27
    assert everybody.lanes[1].staged == 2
    assert {each.org for each in everybody.queues} == {"aaa", "acme", "zzz"}


async def test_roll_ups_go_when_nobody_looks_at_them_any_more(
    line: Connection, connection: AsyncpgConnection
) -> None:
    counted = Counted({("acme", "standard"): JobCounts(submitted=1)}, {("acme", "broke"): 1})
    await roll_ups.add(line, counted)
    for table in ("job_roll_ups", "failure_roll_ups"):
        await connection.execute(
            f"""
            INSERT INTO {table} SELECT (jsonb_populate_record(r, jsonb_build_object(
                'at',
                r.at - interval '1 second' * (
                    3600 + ($2::integer[])[array_position($1::smallint[], r.step_seconds)]
                )
            ))).* FROM {table} AS r
            """,
            list(ROLL_UPS_KEPT_SECONDS),
            list(ROLL_UPS_KEPT_SECONDS.values()),
        )
        assert await connection.fetchval(f"SELECT count(*) FROM {table}") == 12
    assert await StatsPruner(line).tick() > 0
    for table in ("job_roll_ups", "failure_roll_ups"):
        assert await connection.fetchval(f"SELECT count(*) FROM {table}") == 6


def totals(seen: OverviewView) -> dict[str, int]:
    names = ("submitted", "started", "completed", "failed", "cancelled", "retried", "rescued")
    sums = {name: sum(getattr(point, name) for point in seen.series) for name in names}
    return {name: number for name, number in sums.items() if number}


def merged(distributions: Sequence[Sequence[int]]) -> list[int]:
    counts: Counter[int] = Counter()
    for distribution in distributions:
        for bucket, jobs in enumerate(distribution):
            counts[bucket] += jobs
    return [counts[bucket] for bucket in range(max(counts, default=-1) + 1)]
