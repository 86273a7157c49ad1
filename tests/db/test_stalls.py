"""Why a job does not get on: each reason, and what is none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from coatcheck.core.explain import stall_reasons
from coatcheck.core.queries import leases, sql
from coatcheck.core.queries.limits import set_limit
from coatcheck.db.connection import PINNED_PLANS, Connection
from coatcheck.domain.job import ClaimedJob, ConcurrencyLimit
from coatcheck.domain.lanes import DEFAULT_POLICIES, Lane, LanePolicy
from coatcheck.domain.states import State
from tests.db.claimer import Claimer
from tests.db.edge_guard import AsyncpgConnection, unguarded
from tests.db.plans import explain_query
from tests.db.rows import ENDPOINT, HOLDER_BOOT, ORG, put_job, put_queue
from tests.db.run_rows import let_pass, put_run

ACK_SECONDS = DEFAULT_POLICIES[Lane.STANDARD].ack_seconds
WAITING = (State.QUEUED, State.RETRYING, State.STAGED)


@pytest.fixture
async def line(dsn: str) -> AsyncIterator[Connection]:
    opened = Connection(dsn, name="test stalls", server_settings=PINNED_PLANS)
    yield opened
    await opened.close()


async def put_old(
    connection: AsyncpgConnection, state: State, seconds: float = ACK_SECONDS + 1, **columns: Any
) -> ClaimedJob:
    """A job that has been due or held for so many seconds."""
    then = datetime.now(UTC) - timedelta(seconds=seconds)
    times: dict[str, Any] = dict.fromkeys(("created_at", "updated_at", "run_at"), then)
    if state.held:
        times["dispatched_at"] = then
    return await put_job(connection, state, **(times | columns))


async def reason_of(line: Connection, job: ClaimedJob) -> str | None:
    key = (job.org, job.uuid)
    return (await stall_reasons(line, [key], DEFAULT_POLICIES)).get(key)


async def silence(connection: AsyncpgConnection, boot: int, seconds: float) -> None:
    """Move the clock: the worker was last heard of so many seconds ago."""
    await connection.execute(
        "UPDATE workers SET last_seen_at = now() - $2 * interval '1 second' WHERE boot = $1",
        boot,
        seconds,
    )


# no_worker


@pytest.mark.parametrize("state", WAITING)
async def test_a_job_that_nobody_serves_lacks_a_worker(
    line: Connection, connection: AsyncpgConnection, state: State
) -> None:
    job = await put_old(connection, state)
    assert await reason_of(line, job) == "no_worker"


async def test_a_worker_of_other_endpoints_does_not_count(
    line: Connection, connection: AsyncpgConnection
) -> None:
    await leases.register(line, "other", "0", dict(DEFAULT_POLICIES), ["demo.post__other"])
    job = await put_old(connection, State.QUEUED)
    assert await reason_of(line, job) == "no_worker"


async def test_a_worker_without_slots_in_the_lane_does_not_count(
    line: Connection, connection: AsyncpgConnection
) -> None:
    lanes = dict(DEFAULT_POLICIES) | {Lane.STANDARD: LanePolicy(3, ACK_SECONDS, 0)}
    await leases.register(line, "urgent only", "0", lanes, [ENDPOINT])
    job = await put_old(connection, State.QUEUED)
    urgent = await put_old(connection, State.QUEUED, lane=Lane.URGENT.value)
    assert await reason_of(line, job) == "no_worker"
    assert await reason_of(line, urgent) is None


async def test_a_silent_worker_does_not_count(
    line: Connection, connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_old(connection, State.QUEUED)
    await silence(connection, worker.boot, ACK_SECONDS - 5)
    assert await reason_of(line, job) is None
    await silence(connection, worker.boot, ACK_SECONDS + 5)
    assert await reason_of(line, job) == "no_worker"


# threads_held


async def test_a_job_that_no_worker_has_a_thread_for_says_so(
    line: Connection, connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_old(connection, State.QUEUED)
    await leases.set_held_threads(line, worker.boot, {"demo.post__other": 16})
    assert await reason_of(line, job) is None
    await leases.set_held_threads(line, worker.boot, {ENDPOINT: 16})
    assert await reason_of(line, job) == "threads_held"
    await leases.register(line, "another", "0", dict(DEFAULT_POLICIES), [ENDPOINT])
    assert await reason_of(line, job) is None


# What is no stall


@pytest.mark.parametrize("state", WAITING)
async def test_a_job_that_has_not_waited_for_long_is_not_stalled(
    line: Connection, connection: AsyncpgConnection, state: State
) -> None:
    job = await put_old(connection, state, seconds=ACK_SECONDS - 5)
    assert await reason_of(line, job) is None


@pytest.mark.parametrize("state", [State.STAGED, State.RETRYING])
async def test_a_job_that_is_not_due_yet_is_not_stalled(
    line: Connection, connection: AsyncpgConnection, state: State
) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    job = await put_old(connection, state, run_at=later)
    assert await reason_of(line, job) is None


async def test_a_job_that_was_just_given_back_begins_to_wait_anew(
    line: Connection, connection: AsyncpgConnection
) -> None:
    job = await put_old(connection, State.QUEUED, updated_at=datetime.now(UTC))
    assert await reason_of(line, job) is None


async def test_a_job_that_is_merely_behind_others_is_not_stalled(
    line: Connection, connection: AsyncpgConnection, worker: Claimer
) -> None:
    await put_queue(connection, 100)
    job = await put_old(connection, State.QUEUED)
    assert len(await worker.claim(10)) == 10
    assert await reason_of(line, job) is None


@pytest.mark.parametrize("state", [state for state in State if state.terminal])
async def test_a_job_that_has_ended_is_not_stalled(
    line: Connection, connection: AsyncpgConnection, state: State
) -> None:
    job = await put_old(connection, state)
    assert await reason_of(line, job) is None


async def test_the_jobs_of_one_question_are_answered_each_by_itself(
    line: Connection, connection: AsyncpgConnection
) -> None:
    stalled = await put_old(connection, State.QUEUED)
    young = await put_job(connection, State.QUEUED)
    foreign = await put_old(connection, State.QUEUED, org_id="other")
    found = await stall_reasons(
        line, [(ORG, job.uuid) for job in (stalled, young, foreign)], DEFAULT_POLICIES
    )
    assert found == {(ORG, stalled.uuid): "no_worker"}


# concurrency_limit


@pytest.mark.parametrize(
    ("limit_org", "scope", "name"),
    [
        ("*", "endpoint", ENDPOINT),
        (ORG, "endpoint", ENDPOINT),
        (ORG, "org", ""),
        (ORG, "flow", "f"),
    ],
)
async def test_a_full_limit_on_endpoint_org_or_flow_is_a_reason(
    line: Connection,
    connection: AsyncpgConnection,
    worker: Claimer,
    limit_org: str,
    scope: str,
    name: str,
) -> None:
    job = await put_old(connection, State.QUEUED, flow="f")
    await put_job(connection, State.PROCESSING, flow="f")
    await set_limit(line, ConcurrencyLimit(limit_org, scope, name, 2))
    assert await reason_of(line, job) is None
    await put_job(connection, State.DISPATCHING, flow="f")
    assert await reason_of(line, job) == "concurrency_limit"


async def test_what_is_held_under_other_limits_does_not_count(
    line: Connection, connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_old(connection, State.QUEUED, flow="f")
    await set_limit(line, ConcurrencyLimit(ORG, "flow", "f", 1))
    await set_limit(line, ConcurrencyLimit(ORG, "flow", "g", 1))
    await set_limit(line, ConcurrencyLimit("other", "org", "", 0))
    await put_job(connection, State.PROCESSING, flow="g")
    await put_job(connection, State.PROCESSING, flow="f", org_id="other")
    await put_job(connection, State.COMPLETED, flow="f")
    assert await reason_of(line, job) is None


async def test_a_full_or_stopped_run_is_a_reason(
    line: Connection, connection: AsyncpgConnection, worker: Claimer
) -> None:
    run = await put_run(connection, 0, concurrency=2)
    job = await put_old(connection, State.QUEUED, flow=f"{run.hex}/key")
    await put_job(connection, State.PROCESSING, flow=f"{run.hex}/other")
    assert await reason_of(line, job) is None
    await put_job(connection, State.DISPATCHING, flow=run.hex)
    assert await reason_of(line, job) == "concurrency_limit"


# rate_limit


@pytest.mark.parametrize("rate", ["per_second", "key_per_second"])
async def test_a_run_or_a_key_that_waits_for_its_rate_is_a_reason(
    line: Connection, connection: AsyncpgConnection, worker: Claimer, rate: str
) -> None:
    run = await put_run(connection, 1, keys=["a", "b"], **{rate: 0.01})
    fresh = await put_job(connection, State.QUEUED, flow=f"{run.hex}/a")
    await worker.claim_limited(5)
    waits = await put_old(connection, State.QUEUED, flow=f"{run.hex}/a")
    assert await reason_of(line, waits) == "rate_limit"
    assert await reason_of(line, fresh) is None, "it has not waited for long"
    other = await put_old(connection, State.QUEUED, flow=f"{run.hex}/c")
    assert await reason_of(line, other) == ("rate_limit" if rate == "per_second" else None)
    await let_pass(connection, 100)
    assert await reason_of(line, waits) is None


# target_unreachable


@pytest.mark.parametrize("state", [State.RETRYING, State.QUEUED])
async def test_a_job_whose_target_was_away_waits_for_that(
    line: Connection, connection: AsyncpgConnection, worker: Claimer, state: State
) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=10)
    away: dict[str, Any] = {"unreachables": 1, "error_code": "target_unreachable", "run_at": soon}
    job = await put_old(connection, state, **away)
    assert await reason_of(line, job) == "target_unreachable"
    young = await put_old(connection, state, seconds=ACK_SECONDS - 5, **away)
    assert await reason_of(line, young) is None


async def test_a_target_that_answered_since_is_not_the_reason(
    line: Connection, connection: AsyncpgConnection, worker: Claimer
) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=10)
    job = await put_old(
        connection, State.RETRYING, unreachables=1, error_code="handler_error", run_at=soon
    )
    assert await reason_of(line, job) is None


# heartbeat_lost


@pytest.mark.parametrize("state", [state for state in State if state.held])
async def test_a_job_whose_holder_is_silent_has_lost_its_heartbeat(
    line: Connection, connection: AsyncpgConnection, worker: Claimer, state: State
) -> None:
    assert worker.boot == HOLDER_BOOT
    job = await put_old(connection, state, seconds=10 * ACK_SECONDS)
    assert await reason_of(line, job) is None
    await silence(connection, worker.boot, ACK_SECONDS / 2 + 5)
    assert await reason_of(line, job) == "heartbeat_lost"


async def test_a_job_whose_holder_is_forgotten_has_lost_its_heartbeat(
    line: Connection, connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_old(connection, State.PROCESSING)
    await leases.deregister(line, worker.boot)
    assert await reason_of(line, job) == "heartbeat_lost"


# Cost


async def test_a_question_reads_the_jobs_it_asks_about_and_those_held(
    line: Connection, connection: AsyncpgConnection, worker: Claimer
) -> None:
    asked = [await put_old(connection, State.QUEUED) for _ in range(20)]
    for _ in range(30):
        await put_job(connection, State.PROCESSING)
    async with unguarded(connection):
        await connection.execute(
            """
            INSERT INTO jobs (org_id, id, lane, state, failures_max, endpoint, flow,
                              finished_at, expires_at)
            SELECT $1, gen_random_uuid(), 'standard', 'completed', 3, $2, '', now(), now()
            FROM generate_series(1, 20000)
            """,
            ORG,
            ENDPOINT,
        )
    await set_limit(line, ConcurrencyLimit("*", "endpoint", ENDPOINT, 30))
    for name, value in PINNED_PLANS.items():
        await connection.execute(f"SET {name} = '{value}'")
    plan = await explain_query(
        connection,
        sql,
        "explain/stall",
        orgs=[ORG] * len(asked),
        ids=[job.uuid for job in asked],
        lanes=[lane.value for lane in Lane],
        lane_seconds=[policy.ack_seconds for policy in DEFAULT_POLICIES.values()],
    )
    assert plan.sequential_scans("jobs") == 0
    assert plan.rows_read("jobs") <= len(asked) + 30
