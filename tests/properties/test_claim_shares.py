"""The promise of fairness, for any organisations, flows, backlogs and room: who has work gets a
share, organisations first and then their flows, and nobody is passed over."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import AsyncIterator
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coatcheck.domain.job import ClaimedJob
from tests.db.claimer import Claimer, claimer
from tests.db.edge_guard import AsyncpgConnection
from tests.db.rows import connected, recorded

ENDPOINTS: Final = ("demo.post__a", "demo.post__b", "demo.post__c")
EXAMPLES: Final = 40
CLAIMS: Final = 9
ROOM_MAX: Final = 12
DEEP: Final = CLAIMS * ROOM_MAX
"""Jobs of a flow that does not run out."""

Flow = tuple[str, str, str]
"""An organisation, an endpoint, and a name."""
Backlog = Counter[Flow]

flows_of_an_org = st.lists(
    st.tuples(st.sampled_from(ENDPOINTS), st.sampled_from(["", "a", "b", "c", "d"])),
    min_size=1,
    max_size=6,
    unique=True,
)
worlds = st.dictionaries(
    st.sampled_from(["a", "aa", "b", "c", "d", "e", "f", "z"]), flows_of_an_org, min_size=1
)
unhurried = settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), deadline=None)


@pytest.fixture
async def connection(dsn: str) -> AsyncIterator[AsyncpgConnection]:
    async with connected(dsn) as open_connection:
        yield open_connection


@pytest.fixture
async def worker(dsn: str) -> AsyncIterator[Claimer]:
    async with claimer(dsn, ENDPOINTS) as registered:
        yield registered


async def begin(connection: AsyncpgConnection, worker: Claimer, backlog: Backlog) -> None:
    """These jobs, and no others; and a worker that has claimed nothing yet."""
    await connection.execute("TRUNCATE jobs, queue")
    await connection.execute(
        recorded("""
        INSERT INTO jobs (org_id, id, lane, failures_max, endpoint, flow, payload)
        SELECT f.org_id, overlay(gen_random_uuid()::text PLACING '0190' FROM 1)::uuid,
               'standard', 3, f.endpoint, f.flow, '{}'
        FROM unnest($1::text[], $2::text[], $3::text[], $4::integer[])
                 AS f (org_id, endpoint, flow, jobs),
             generate_series(1, f.jobs)
        """),
        [org for org, _, _ in backlog],
        [endpoint for _, endpoint, _ in backlog],
        [flow for _, _, flow in backlog],
        list(backlog.values()),
    )
    worker.forget_turns()


def flow_of(job: ClaimedJob) -> Flow:
    return job.org, job.endpoint, job.queue_key


def by_org(flows: Counter[Flow]) -> Counter[str]:
    orgs: Counter[str] = Counter()
    for (org, _, _), jobs in flows.items():
        orgs[org] += jobs
    return orgs


def check_one_claim(before: Backlog, taken: Counter[Flow], room: int) -> None:
    """Nobody who has more work got less than an equal part."""
    assert taken.total() <= room
    assert taken <= before
    orgs = by_org(before)
    share = room // len(orgs)
    for org in orgs:
        flows = {flow: jobs for flow, jobs in before.items() if flow[0] == org}
        ran_out = any(taken[flow] == jobs for flow, jobs in flows.items())
        # What a flow cannot use goes to all, with the next claim.
        assert ran_out or by_org(taken)[org] >= share
        for flow, jobs in flows.items():
            assert taken[flow] >= min(jobs, share // len(flows))
    assert taken.total() >= min(room, 1)


@unhurried
@given(
    world=worlds,
    room=st.integers(1, ROOM_MAX),
    jobs=st.lists(st.integers(1, 12), min_size=48, max_size=48),
)
async def test_each_claim_gives_everybody_who_has_work_an_equal_part_and_nobody_waits_for_ever(
    world: dict[str, list[tuple[str, str]]],
    room: int,
    jobs: list[int],
    connection: AsyncpgConnection,
    worker: Claimer,
) -> None:
    names = [(org, *flow) for org, flows in world.items() for flow in flows]
    backlog: Backlog = Counter(dict(zip(names, jobs, strict=False)))
    await begin(connection, worker, backlog)
    waiting_claims = dict.fromkeys(backlog, 0)
    # A round of the organisations for each flow of the one with the most.
    patience = math.ceil(len(world) / room) * max(map(len, world.values())) + 1
    while backlog:
        taken = Counter(map(flow_of, await worker.claim(room)))
        check_one_claim(backlog, taken, room)
        backlog -= taken
        for flow in waiting_claims:
            waiting_claims[flow] = (
                0 if taken[flow] or not backlog[flow] else waiting_claims[flow] + 1
            )
        assert max(waiting_claims.values()) <= patience
    assert await worker.claim(room) == []


@unhurried
@given(world=worlds, rooms=st.lists(st.integers(1, ROOM_MAX), min_size=CLAIMS, max_size=CLAIMS))
async def test_over_many_claims_nobody_who_has_work_is_more_than_one_job_ahead(
    world: dict[str, list[tuple[str, str]]],
    rooms: list[int],
    connection: AsyncpgConnection,
    worker: Claimer,
) -> None:
    """Whatever room each of the claims has."""
    backlog: Backlog = Counter(
        {(org, *flow): DEEP for org, flows in world.items() for flow in flows}
    )
    await begin(connection, worker, backlog)
    taken: Counter[Flow] = Counter(dict.fromkeys(backlog, 0))
    for room in rooms:
        claimed = await worker.claim(room)
        assert len(claimed) == room
        taken.update(map(flow_of, claimed))
        orgs = by_org(taken)
        assert max(orgs.values()) - min(orgs.values()) <= 1
        for org in world:
            of_org = [jobs for flow, jobs in taken.items() if flow[0] == org]
            assert max(of_org) - min(of_org) <= 1


@unhurried
@given(world=worlds, room=st.integers(1, ROOM_MAX))
async def test_claims_under_limits_give_everybody_an_equal_part_as_well(
    world: dict[str, list[tuple[str, str]]],
    room: int,
    connection: AsyncpgConnection,
    worker: Claimer,
) -> None:
    """Who is given one job more than others is drawn by lot here."""
    await connection.execute("TRUNCATE concurrency_limits")
    await connection.executemany(
        "INSERT INTO concurrency_limits VALUES ($1, 'org', '', 1000000)", [(org,) for org in world]
    )
    backlog: Backlog = Counter(
        {(org, *flow): DEEP for org, flows in world.items() for flow in flows}
    )
    await begin(connection, worker, backlog)
    for _ in range(3):
        taken = Counter(map(flow_of, await worker.claim_limited(room)))
        assert taken.total() == room
        orgs = by_org(taken)
        for org, flows in world.items():
            assert orgs[org] in (room // len(world), math.ceil(room / len(world)))
            of_org = [taken[org, *flow] for flow in flows]
            assert max(of_org) - min(of_org) <= 1
