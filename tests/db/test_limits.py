"""Concurrency limits: what each scope caps, and when permits come back."""

from __future__ import annotations

import pytest

from coatcheck.core.queries import jobs, maintenance
from coatcheck.core.queries.limits import clear_limit, set_limit
from coatcheck.domain.job import ConcurrencyLimit
from coatcheck.domain.lanes import Lane
from coatcheck.domain.limits import CRASHES_MAX
from coatcheck.domain.states import TransitionEvent
from tests.db.claimer import KEEP_FAILED_SECONDS, Claimer
from tests.db.edge_guard import AsyncpgConnection
from tests.db.events_on_a_database import ROWS_MAX, fall_silent
from tests.db.rows import ENDPOINT, put_queue

OTHER = "demo.post__other"


async def everything(worker: Claimer, room: int = 100) -> list[tuple[str, str, str]]:
    """What a worker can get hold of, by both kinds of claim, until there is no more."""
    taken = []
    while claimed := await worker.claim(room) + await worker.claim_limited(room):
        taken += [(job.endpoint, job.org, job.queue_key) for job in claimed]
    return sorted(taken)


@pytest.fixture
async def queues(connection: AsyncpgConnection, worker: Claimer) -> None:
    """Ten jobs for every combination of two endpoints, two organisations and two flows."""
    worker.endpoints.append(OTHER)
    for endpoint in (ENDPOINT, OTHER):
        for org in ("a", "b"):
            for flow in ("", "batch"):
                await put_queue(connection, 10, endpoint=endpoint, org=org, flow=flow)


@pytest.mark.parametrize(
    ("limit", "capped"),
    [
        (ConcurrencyLimit("*", "endpoint", OTHER, 3), lambda e, o, f: e == OTHER),
        (ConcurrencyLimit("a", "endpoint", OTHER, 3), lambda e, o, f: (e, o) == (OTHER, "a")),
        (ConcurrencyLimit("a", "org", "", 3), lambda e, o, f: o == "a"),
        (ConcurrencyLimit("a", "flow", "batch", 3), lambda e, o, f: (o, f) == ("a", "batch")),
        (ConcurrencyLimit("a", "flow", "", 3), lambda e, o, f: (o, f) == ("a", "")),
    ],
    ids=lambda value: f"{value.scope} {value.org}" if isinstance(value, ConcurrencyLimit) else "",
)
async def test_each_scope_caps_what_it_names_and_nothing_else(
    limit: ConcurrencyLimit, capped, queues: None, worker: Claimer
) -> None:
    await set_limit(worker.line, limit)
    taken = await everything(worker)
    under = [flow for flow in taken if capped(*flow)]
    assert len(under) == 3
    combinations = [(e, o, f) for e in (ENDPOINT, OTHER) for o in "ab" for f in ("", "batch")]
    free = [flow for flow in combinations if not capped(*flow)]
    assert sorted(set(taken) - set(under)) == sorted(free)
    assert len(taken) - len(under) == 10 * len(free)


async def test_of_several_limits_on_a_job_each_holds(queues: None, worker: Claimer) -> None:
    await set_limit(worker.line, ConcurrencyLimit("*", "endpoint", ENDPOINT, 9))
    await set_limit(worker.line, ConcurrencyLimit("a", "endpoint", ENDPOINT, 4))
    await set_limit(worker.line, ConcurrencyLimit("a", "flow", "batch", 2))
    await set_limit(worker.line, ConcurrencyLimit("b", "org", "", 6))
    taken = await everything(worker)
    on_endpoint = [flow for flow in taken if flow[0] == ENDPOINT]
    assert len(on_endpoint) <= 9
    assert len([1 for _, org, _ in on_endpoint if org == "a"]) <= 4
    assert len([1 for _, org, flow in taken if (org, flow) == ("a", "batch")]) == 2
    assert len([1 for _, org, _ in taken if org == "b"]) == 6
    # The other endpoint's jobs of org a are capped by its batch alone.
    assert (
        len([1 for endpoint, org, flow in taken if (endpoint, org, flow) == (OTHER, "a", "")]) == 10
    )


async def test_a_limit_of_none_blocks(queues: None, worker: Claimer) -> None:
    await set_limit(worker.line, ConcurrencyLimit("*", "endpoint", OTHER, 0))
    assert {endpoint for endpoint, _, _ in await everything(worker)} == {ENDPOINT}


async def test_a_limit_counts_over_all_lanes(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    for lane in Lane:
        await put_queue(connection, 5, lane=lane, org="a")
    await set_limit(worker.line, ConcurrencyLimit("a", "org", "", 4))
    claimed = await worker.claim_limited(dict.fromkeys(Lane, 10))
    assert len(claimed) == 4
    assert await worker.claim_limited(dict.fromkeys(Lane, 10)) == []


async def test_permits_in_short_supply_go_to_the_most_urgent_lane(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    for lane in Lane:
        await put_queue(connection, 5, lane=lane, org="a")
    await set_limit(worker.line, ConcurrencyLimit("a", "org", "", 1))
    (job,) = await worker.claim_limited(dict.fromkeys(Lane, 10))
    assert job.lane is Lane.URGENT


async def test_jobs_held_before_the_limit_was_set_count(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    await put_queue(connection, 10, org="a")
    assert len(await worker.claim(5)) == 5
    await set_limit(worker.line, ConcurrencyLimit("a", "org", "", 3))
    assert await worker.claim(5) == []
    assert await worker.claim_limited(5) == []


async def test_a_limit_can_be_raised_and_taken_away(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    await put_queue(connection, 10, org="a")
    await set_limit(worker.line, ConcurrencyLimit("a", "org", "", 1))
    assert len(await everything(worker)) == 1
    await set_limit(worker.line, ConcurrencyLimit("a", "org", "", 3))
    assert len(await everything(worker)) == 2
    assert await clear_limit(worker.line, "a", "org", "")
    assert len(await everything(worker)) == 7


async def test_a_limited_claim_takes_no_more_than_its_room(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    for number in range(20):
        await put_queue(connection, 10, org="a", flow=f"flow {number}")
    await set_limit(worker.line, ConcurrencyLimit("a", "org", "", 100))
    for room in (1, 5, 17):
        assert len(await worker.claim_limited(room)) == room


@pytest.mark.parametrize("end", ["complete", "fail", "retry", "release", "unreachable", "rescue"])
async def test_a_permit_comes_back_however_its_job_ends(
    end: str, connection: AsyncpgConnection, worker: Claimer
) -> None:
    await put_queue(connection, 2, org="a")
    await set_limit(worker.line, ConcurrencyLimit("a", "org", "", 1))
    (job,) = await worker.claim_limited(5)
    assert await worker.claim_limited(5) == []
    match end:
        case "complete":
            await worker.complete(job)
        case "rescue":
            await fall_silent(worker)
            await maintenance.rescue(
                worker.line,
                crashes_max=CRASHES_MAX,
                keep_failed_seconds=KEEP_FAILED_SECONDS,
                rows_max=ROWS_MAX,
            )
        case _:
            await worker.settle(job, TransitionEvent(end))
    assert len(await worker.claim_limited(5)) == 1


async def test_a_cancelled_job_gives_its_permit_back_only_once_it_has_stopped(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    await put_queue(connection, 2, org="a")
    await set_limit(worker.line, ConcurrencyLimit("a", "org", "", 1))
    (job,) = await worker.claim_limited(5)
    await jobs.cancel(worker.line, job.org, job.uuid, KEEP_FAILED_SECONDS)
    assert await worker.claim_limited(5) == []
    await worker.settle(job, TransitionEvent.ACKNOWLEDGE_CANCEL)
    assert len(await worker.claim_limited(5)) == 1
