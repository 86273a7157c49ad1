"""Limits hold exactly with several workers claiming at once, at every moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import pytest

from coatcheck.core.queries import sql
from coatcheck.core.queries.claims import LimitedClaim, claim_limited
from coatcheck.core.queries.limits import set_limit
from coatcheck.domain.job import ClaimedJob, ConcurrencyLimit
from tests.db.blocking import until_blocked
from tests.db.claimer import Claimer, claimer
from tests.db.edge_guard import AsyncpgConnection
from tests.db.rows import ENDPOINT, put_queue

WORKERS = 4
ROUNDS = 25
JOBS_EACH = 60


@pytest.fixture
async def workers(dsn: str) -> AsyncIterator[list[Claimer]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(claimer(dsn)) for _ in range(WORKERS)]


class Held:
    """Who is held now. A job is taken off before its end is sent, so this never counts too many;
    what it counts is therefore held in the database, too."""

    def __init__(self, limits: list[ConcurrencyLimit]) -> None:
        self._limits = limits
        self._jobs: dict[object, ClaimedJob] = {}
        self.most: dict[ConcurrencyLimit, int] = dict.fromkeys(limits, 0)

    def add(self, jobs: list[ClaimedJob]) -> None:
        for job in jobs:
            assert job.uuid not in self._jobs
            self._jobs[job.uuid] = job
        for limit in self._limits:
            count = sum(map(covers(limit), self._jobs.values()))
            self.most[limit] = max(self.most[limit], count)

    def remove(self, jobs: list[ClaimedJob]) -> None:
        for job in jobs:
            del self._jobs[job.uuid]


def covers(limit: ConcurrencyLimit) -> Callable[[ClaimedJob], bool]:
    match limit.scope:
        case "org":
            return lambda job: job.org == limit.org
        case "flow":
            return lambda job: (job.org, job.queue_key) == (limit.org, limit.name)
        case _:
            return lambda job: job.endpoint == limit.name and limit.org in ("*", job.org)


@pytest.mark.parametrize(
    "limits",
    [
        [ConcurrencyLimit("*", "endpoint", ENDPOINT, 5)],
        [ConcurrencyLimit("a", "org", "", 1), ConcurrencyLimit("b", "org", "", 3)],
        [
            ConcurrencyLimit("*", "endpoint", ENDPOINT, 7),
            ConcurrencyLimit("a", "endpoint", ENDPOINT, 4),
            ConcurrencyLimit("a", "flow", "batch", 1),
            ConcurrencyLimit("b", "org", "", 5),
        ],
    ],
    ids=["one endpoint", "two organisations", "overlapping"],
)
async def test_no_limit_is_ever_exceeded(
    limits: list[ConcurrencyLimit], connection: AsyncpgConnection, workers: list[Claimer]
) -> None:
    for org in ("a", "b"):
        for flow in ("", "batch"):
            await put_queue(connection, JOBS_EACH, org=org, flow=flow)
    for limit in limits:
        await set_limit(workers[0].line, limit)
    held = Held(limits)
    ended = 0

    async def work(worker: Claimer) -> None:
        """Holds what it claimed until it has claimed again."""
        nonlocal ended
        before: list[ClaimedJob] = []
        while ended < 4 * JOBS_EACH:
            claimed = await worker.claim_limited(3) + await worker.claim(3)
            held.add(claimed)
            held.remove(before)
            accepted = await worker.complete(*before)
            ended += accepted
            before = claimed

    await asyncio.gather(*map(work, workers))
    assert ended == 4 * JOBS_EACH
    assert {limit: most for limit, most in held.most.items() if most > limit.held_max} == {}
    assert max(held.most.values()) > 1, "jobs were held together"


@pytest.mark.parametrize("held_max", [1, 3, 10])
async def test_of_workers_that_claim_together_exactly_as_many_as_allowed_hold_jobs(
    held_max: int, connection: AsyncpgConnection, workers: list[Claimer]
) -> None:
    """Nobody ends a job while all claim, so what is held after is the most there ever was."""
    await put_queue(connection, ROUNDS * held_max, org="a")
    await set_limit(workers[0].line, ConcurrencyLimit("a", "org", "", held_max))
    for _ in range(ROUNDS):
        shares = await asyncio.gather(*(worker.claim_limited(held_max) for worker in workers))
        held = await connection.fetchval("SELECT count(*) FROM jobs WHERE lease IS NOT NULL")
        assert held == sum(map(len, shares)) == held_max
        for worker, share in zip(workers, shares, strict=True):
            if share:
                await worker.complete(*share)


async def test_a_worker_waits_for_the_claim_before_it_to_commit(
    connection: AsyncpgConnection, workers: list[Claimer]
) -> None:
    """The permit a rival has just taken is seen: the lock is taken before the claim's snapshot."""
    await put_queue(connection, 5, org="a")
    await set_limit(workers[0].line, ConcurrencyLimit("a", "org", "", 1))
    await connection.execute(sql("claims/begin"))
    assert len(await LimitedClaim(connection, workers[1].order(1)).claim()) == 1
    claim = asyncio.create_task(workers[0].claim_limited(5))
    await until_blocked(connection, "coatcheck test claimer")
    await connection.execute("COMMIT")
    assert await claim == []


async def test_a_worker_gives_up_waiting_for_a_claim_that_is_frozen_and_looks_again_soon(
    connection: AsyncpgConnection, workers: list[Claimer]
) -> None:
    """All workers of a process share the connection that waits."""
    await put_queue(connection, 5, org="a")
    await set_limit(workers[0].line, ConcurrencyLimit("a", "org", "", 1))
    await connection.execute(sql("claims/begin"))
    order = workers[0].order(5)
    assert await claim_limited(workers[0].line, order) == []
    assert order.look_again_seconds is not None
    await connection.execute("COMMIT")
    assert len(await workers[0].claim_limited(5)) == 1
