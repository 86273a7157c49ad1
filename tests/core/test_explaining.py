"""Why a job waits, behind how many others, and for how long."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from coatcheck.core import Engine, explain
from coatcheck.core.queries import leases, roll_ups
from coatcheck.db.connection import Connection
from coatcheck.domain.explanation import BlockerKind, Explanation
from coatcheck.domain.ids import to_text
from coatcheck.domain.job import ClaimedJob, ConcurrencyLimit
from coatcheck.domain.lanes import DEFAULT_POLICIES, Lane
from coatcheck.domain.states import State
from coatcheck.telemetry.job_stats import JobStats
from tests.db.claimer import Claimer, claimer
from tests.db.edge_guard import AsyncpgConnection, unguarded
from tests.db.rows import ENDPOINT, HOLDER_BOOT, ORG, put_job, put_queue
from tests.db.run_rows import put_run

SOON = timedelta(seconds=90)


@pytest.fixture
async def worker(dsn: str) -> AsyncIterator[Claimer]:
    async with claimer(dsn) as registered:
        yield registered


async def explained(engine: Engine, job: ClaimedJob) -> Explanation:
    view = await engine.get(to_text(job.uuid), org=job.org)
    return await engine.explainer.explain(view)


def kinds(explanation: Explanation) -> list[BlockerKind]:
    return [each.kind for each in explanation.blockers]


async def test_a_job_that_is_due_later_says_when(
    engine: Engine, connection: AsyncpgConnection
) -> None:
    due = datetime.now(UTC) + SOON
    told = await explained(engine, await put_job(connection, State.STAGED, run_at=due))
    assert kinds(told) == [BlockerKind.SCHEDULED]
    assert told.blockers[0].until == due
    assert f"{due:%H:%M:%S} UTC" in told.summary
    assert 85 <= told.retry_after <= 90


async def test_a_job_that_failed_says_with_what_and_when_it_is_tried_again(
    engine: Engine, connection: AsyncpgConnection
) -> None:
    job = await put_job(
        connection,
        State.RETRYING,
        run_at=datetime.now(UTC) + SOON,
        failures=1,
        error_code="http_503",
        error_message="the upstream answered 503",
    )
    told = await explained(engine, job)
    assert kinds(told) == [BlockerKind.BACKOFF]
    assert "Attempt 1 failed: the upstream answered 503." in told.summary
    assert "3 attempts are left" in told.summary
    assert 85 <= told.retry_after <= 90


async def test_a_job_whose_target_is_away_spends_no_attempt(
    engine: Engine, connection: AsyncpgConnection
) -> None:
    job = await put_job(
        connection,
        State.RETRYING,
        run_at=datetime.now(UTC) + SOON,
        unreachables=4,
        error_code="target_unreachable",
        error_message="connection refused",
    )
    told = await explained(engine, job)
    assert kinds(told) == [BlockerKind.TARGET_UNREACHABLE]
    assert "connection refused" in told.summary
    assert told.blockers[0].since is not None
    assert told.eta is None


async def test_a_job_that_nobody_serves_says_so(
    engine: Engine, connection: AsyncpgConnection
) -> None:
    told = await explained(engine, await put_job(connection, endpoint="unserved.post__work"))
    assert kinds(told) == [BlockerKind.NO_WORKER]
    assert "None is registered." in told.summary
    assert told.position == 1
    assert (told.eta, told.retry_after) == (None, 0)


async def test_a_worker_that_fell_silent_serves_nothing_and_says_since_when(
    engine: Engine, connection: AsyncpgConnection, worker: Claimer
) -> None:
    await connection.execute("UPDATE workers SET last_seen_at = now() - interval '10 minutes'")
    told = await explained(engine, await put_job(connection))
    assert kinds(told) == [BlockerKind.NO_WORKER]
    assert "The last one was seen at" in told.summary


async def test_a_full_limit_is_named_with_its_numbers_and_its_holders(
    engine: Engine, connection: AsyncpgConnection, worker: Claimer
) -> None:
    holders = [await put_job(connection, State.PROCESSING) for _ in range(2)]
    other = await put_job(connection, State.PROCESSING, org_id="other")
    await engine.set_limit(ConcurrencyLimit(ORG, "endpoint", ENDPOINT, 2))
    told = await explained(engine, await put_job(connection))
    (blocker,) = told.blockers
    assert blocker.kind is BlockerKind.CONCURRENCY_LIMIT
    assert (blocker.key, blocker.limit, blocker.held) == (f"endpoint:{ENDPOINT}", 2, 2)
    assert {each.uuid for each in blocker.holders} == {each.uuid for each in holders}
    assert other.uuid not in {each.uuid for each in blocker.holders}
    assert not blocker.is_shared


async def test_a_limit_on_an_endpoint_of_all_names_no_other_organisation(
    engine: Engine, connection: AsyncpgConnection, worker: Claimer
) -> None:
    await put_job(connection, State.PROCESSING, org_id="other")
    await engine.set_limit(ConcurrencyLimit("*", "endpoint", ENDPOINT, 1))
    (blocker,) = (await explained(engine, await put_job(connection))).blockers
    assert blocker.kind is BlockerKind.CONCURRENCY_LIMIT
    assert blocker.is_shared
    assert list(blocker.holders) == []
    assert "1" not in blocker.message, "nor how many run for all of them"


async def test_a_limit_of_none_is_a_pause(
    engine: Engine, connection: AsyncpgConnection, worker: Claimer
) -> None:
    await engine.set_limit(ConcurrencyLimit(ORG, "org", "", 0))
    told = await explained(engine, await put_job(connection))
    assert kinds(told) == [BlockerKind.PAUSED]
    assert told.eta is None


async def test_a_run_that_started_as_many_as_its_rate_allows_says_until_when(
    engine: Engine, connection: AsyncpgConnection, worker: Claimer
) -> None:
    run = await put_run(connection, 3, per_second=0.01)
    await worker.claim_limited(1)
    task = await connection.fetchval(
        "SELECT id FROM jobs WHERE flow = $1 AND state = 'queued' ORDER BY run_at, id LIMIT 1",
        run.hex,
    )
    view = await engine.get(to_text(task), org=ORG)
    told = await engine.explainer.explain(view)
    assert told.blockers[0].kind is BlockerKind.RATE_LIMIT
    assert told.blockers[0].limit == pytest.approx(0.01)
    assert told.blockers[0].until is not None


async def test_a_lane_without_a_free_slot_is_full(
    engine: Engine, connection: AsyncpgConnection, worker: Claimer
) -> None:
    slots = DEFAULT_POLICIES[Lane.STANDARD].concurrency
    held = [await put_job(connection, State.PROCESSING, org_id="other") for _ in range(slots - 1)]
    mine = await put_job(connection, State.PROCESSING)
    (blocker,) = (await explained(engine, await put_job(connection))).blockers
    assert blocker.kind is BlockerKind.LANE_FULL
    assert (blocker.key, blocker.limit, blocker.held) == ("standard", slots, len(held) + 1)
    assert [each.uuid for each in blocker.holders] == [mine.uuid]
    assert blocker.is_shared


async def test_slots_that_are_kept_for_others_are_no_reason_to_wait_for_who_holds_none(
    engine: Engine, connection: AsyncpgConnection, worker: Claimer
) -> None:
    policy = DEFAULT_POLICIES[Lane.STANDARD]
    for _ in range(policy.concurrency - policy.reserved):
        await put_job(connection, State.PROCESSING, org_id="other")
    assert (await explained(engine, await put_job(connection))).blockers == []

    mine = await put_job(connection, State.PROCESSING)
    (blocker,) = (await explained(engine, await put_job(connection, flow="next"))).blockers
    assert blocker.kind is BlockerKind.LANE_FULL
    assert "reserved for organisations that hold none" in blocker.message
    assert (blocker.key, blocker.limit, blocker.held) == ("standard", None, 1)
    assert [each.uuid for each in blocker.holders] == [mine.uuid]
    assert not blocker.is_shared


async def test_a_job_behind_others_says_its_place_and_when_it_may_start_and_end(
    engine: Engine, connection: AsyncpgConnection, worker: Claimer, dsn: str
) -> None:
    await put_queue(connection, 119)
    await happened(dsn, started=120, waited=1.0)
    for seconds in (1.0, 2.0, 2.0, 2.0, 4.0, 4.0):
        await put_ended(connection, seconds)
    told = await explained(engine, await put_job(connection))
    assert kinds(told) == [BlockerKind.QUEUED_BEHIND]
    assert told.position == 120
    assert "119 jobs are ahead of it" in told.summary
    assert told.eta is not None
    # Of this minute some seconds have passed, and 120 were started in them.
    assert 1 <= told.eta.start_p50 <= 61
    assert told.eta.start_p90 >= told.eta.start_p50
    assert told.eta.end_p50 - told.eta.start_p50 == pytest.approx(2.0)
    assert told.eta.end_p90 - told.eta.start_p90 == pytest.approx(4.0)
    assert told.retry_after >= 1


async def test_how_long_jobs_ran_is_known_behind_a_queue_longer_than_what_is_looked_at(
    engine: Engine,
    connection: AsyncpgConnection,
    worker: Claimer,
    dsn: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(explain, "JOBS_WALKED", 5)
    await happened(dsn, started=120, waited=1.0)
    for _ in range(5):
        await put_ended(connection, 2.0)
    for _ in range(19):
        await put_job(connection)
    told = await explained(engine, await put_job(connection))
    assert told.position == 20
    assert told.eta is not None
    assert told.eta.end_p50 - told.eta.start_p50 == pytest.approx(2.0)


async def test_a_running_job_says_for_how_long_and_what_is_left(
    engine: Engine, connection: AsyncpgConnection, worker: Claimer
) -> None:
    for _ in range(5):
        await put_ended(connection, 60.0)
    began = datetime.now(UTC) - timedelta(seconds=20)
    job = await put_job(connection, State.PROCESSING, started_at=began)
    told = await explained(engine, job)
    assert kinds(told) == [BlockerKind.RUNNING]
    assert told.summary.startswith("It runs, for 2")
    assert told.eta is not None
    assert (told.eta.start_p50, told.eta.start_p90) == (0, 0)
    assert told.eta.end_p50 == pytest.approx(40, abs=5)
    halfway = await put_job(connection, State.PROCESSING, started_at=began, progress=0.8)
    told = await explained(engine, halfway)
    assert told.eta is not None
    assert told.eta.end_p50 == pytest.approx(5, abs=1)


async def test_a_job_whose_worker_is_silent_says_when_another_is_given_it(
    engine: Engine, connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(connection, State.PROCESSING)
    await connection.execute(
        "UPDATE workers SET last_seen_at = now() - interval '100 seconds' WHERE boot = $1",
        HOLDER_BOOT,
    )
    told = await explained(engine, job)
    (blocker,) = told.blockers
    assert blocker.kind is BlockerKind.HEARTBEAT_LOST
    assert blocker.since is not None
    assert blocker.until == blocker.since + timedelta(seconds=120)


async def test_a_job_that_runs_elsewhere_says_so(
    engine: Engine, connection: AsyncpgConnection
) -> None:
    job = await put_parked(connection, faults=0)
    assert kinds(await explained(engine, job)) == [BlockerKind.RUNNING_ELSEWHERE]
    silent = await put_parked(connection, faults=3)
    told = await explained(engine, silent)
    assert kinds(told) == [BlockerKind.TARGET_UNREACHABLE]
    assert "the last 3 checks failed" in told.summary


async def test_a_job_that_moves_on_while_it_is_looked_at_is_explained_as_it_is_then(
    engine: Engine, connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(connection)
    waiting = await engine.get(to_text(job.uuid), org=ORG)
    (claimed,) = await worker.claim(1)
    told = await engine.explainer.explain(waiting)
    assert (told.state, kinds(told)) == ("dispatching", [BlockerKind.RUNNING])
    running = await engine.get(to_text(job.uuid), org=ORG)
    await worker.complete(claimed)
    told = await engine.explainer.explain(running)
    assert (told.state, told.terminal, kinds(told)) == ("completed", True, [])


async def test_a_job_that_has_ended_says_how(engine: Engine, connection: AsyncpgConnection) -> None:
    job = await put_job(connection, State.FAILED, error_code="broke", error_message="It broke.")
    told = await explained(engine, job)
    assert told.terminal
    assert told.summary.startswith("It failed at ")
    assert told.summary.endswith("It broke.")
    assert (list(told.blockers), told.eta, told.position, told.retry_after) == ([], None, None, 0)


async def happened(dsn: str, *, started: int, waited: float) -> None:
    """So many jobs were started just now, each after waiting."""
    job_stats = JobStats()
    job = ClaimedJob(
        ORG, UUID(int=0), Lane.STANDARD, ENDPOINT, "", b"", 1, 0, 0, None, None, 1, None, waited
    )
    job_stats.started([job] * started)
    line = Connection(dsn, name="test")
    await roll_ups.add(line, job_stats.take())
    await line.close()


async def put_ended(connection: AsyncpgConnection, seconds: float) -> None:
    now = datetime.now(UTC)
    await put_job(
        connection,
        State.COMPLETED,
        started_at=now - timedelta(seconds=seconds),
        finished_at=now,
        expires_at=now + timedelta(days=1),
    )


async def put_parked(connection: AsyncpgConnection, *, faults: int) -> ClaimedJob:
    now = datetime.now(UTC)
    job = await put_job(
        connection, State.PROCESSING, lease=7 + faults, execution_id="there", started_at=now
    )
    async with unguarded(connection):
        await connection.execute(
            """
            INSERT INTO remote_calls (
                org_id, job_id, begun_by, endpoint, pace_key, destination, spawned_at, remote_id,
                lease, due_at, faults
            )
            VALUES ($1, $2, 1, $3, '', '', now(), 'there', $4, now() + interval '5 s', $5)
            """,
            job.org,
            job.uuid,
            job.endpoint,
            job.lease,
            faults,
        )
    return job


async def test_a_worker_says_how_many_slots_it_has(
    dsn: str, worker: Claimer, engine: Engine
) -> None:
    (seen,) = await engine.overviews.workers()
    assert dict(zip(seen.lanes, seen.slots, strict=True)) == {
        lane.value: policy.concurrency for lane, policy in DEFAULT_POLICIES.items()
    }
    assert (seen.boot, seen.alive, list(seen.endpoints)) == (worker.boot, True, [ENDPOINT])
    await leases.deregister(worker.line, worker.boot)
    assert list(await engine.overviews.workers()) == []
