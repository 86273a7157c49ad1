"""A target never has more jobs than it may, with several workers claiming at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import asyncpg
import pytest

from coatcheck.core.queries import sql
from coatcheck.core.queries.claims import LimitedClaim
from coatcheck.core.queries.limits import set_limit
from coatcheck.domain.job import ConcurrencyLimit
from coatcheck.products.llm.queries import AssignedJob
from coatcheck.products.llm.queries import sql as llm_sql
from tests.db.blocking import until_blocked
from tests.db.edge_guard import AsyncpgConnection
from tests.db.llm_claims import LlmClaimer, llm_claimer, offer, put_chats
from tests.db.rows import ENDPOINT, ORG, put_queue

WORKERS = 4
ROUNDS = 10
JOBS_EACH = 30
OFFERS = [offer("one", 3), offer("two", 1, resident=["b:1"])]
PERMITS = {"one": 3, "two": 1}


@pytest.fixture
async def workers(dsn: str) -> AsyncIterator[list[LlmClaimer]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(llm_claimer(dsn)) for _ in range(WORKERS)]


async def test_of_workers_that_claim_together_exactly_as_many_as_allowed_hold_jobs(
    connection: AsyncpgConnection, workers: list[LlmClaimer]
) -> None:
    """Nobody ends a job while all claim, so what is held after is the most there ever was."""
    for model in ("a:1", "b:1", "c:1"):
        await put_chats(connection, ROUNDS * 4, model)
    for _ in range(ROUNDS):
        shares = await asyncio.gather(*(worker.claim(*OFFERS) for worker in workers))
        assert Counter(held.target for share in shares for held in share) == PERMITS
        for worker, share in zip(workers, shares, strict=True):
            await worker.worker.complete(*(held.job for held in share))


async def test_permits_are_never_exceeded_while_jobs_come_and_go(
    connection: AsyncpgConnection, workers: list[LlmClaimer]
) -> None:
    for model in ("a:1", "b:1"):
        await put_chats(connection, JOBS_EACH, model)
    at_once: Counter[str] = Counter()
    most: Counter[str] = Counter()
    ended = 0

    async def work(worker: LlmClaimer) -> None:
        """Holds what it claimed until it has claimed again."""
        nonlocal ended
        before: list[AssignedJob] = []
        while ended < 2 * JOBS_EACH:
            claimed = await worker.claim(*OFFERS, room=1)
            at_once.update(held.target for held in claimed)
            most.update(at_once - most)
            # Taken off before its end is sent, so this never counts too many.
            at_once.subtract(held.target for held in before)
            accepted = await worker.worker.complete(*(held.job for held in before))
            ended += accepted
            before = claimed

    await asyncio.gather(*map(work, workers))
    assert ended == 2 * JOBS_EACH
    assert most == PERMITS


async def test_a_claim_waits_for_the_one_before_it_to_commit(
    connection: AsyncpgConnection, workers: list[LlmClaimer]
) -> None:
    """The permit a rival has just taken is seen: the lock is taken before the look's snapshot."""
    await put_chats(connection, 5, "a:1")
    (job,) = await workers[1].claim(offer())
    await connection.execute(llm_sql("begin_claim"))
    # Whoever has the lock gives the permit to another target, and its own away.
    await connection.execute(
        "UPDATE llm_assignments SET target = 'elsewhere' WHERE job_id = $1", job.job.uuid
    )
    claim = asyncio.create_task(workers[0].claim(offer(), offer("elsewhere")))
    await until_blocked(connection, "coatcheck test claimer")
    await connection.execute("COMMIT")
    assert [held.target for held in await claim] == ["gpu"]


async def test_a_claim_that_was_cancelled_while_it_waited_leaves_its_connection_usable(
    connection: AsyncpgConnection, workers: list[LlmClaimer]
) -> None:
    """By an administrator, or by a timeout that the server has set."""
    await put_chats(connection, 1, "a:1")
    await connection.execute(llm_sql("begin_claim"))
    claim = asyncio.create_task(workers[0].claim(offer()))
    pid = await until_blocked(connection, "coatcheck test claimer")
    await connection.execute("SELECT pg_cancel_backend($1)", pid)
    with pytest.raises(asyncpg.QueryCanceledError):
        await claim
    await connection.execute("COMMIT")
    assert len(await workers[0].claim(offer())) == 1


async def test_under_a_limit_a_claim_waits_for_claims_of_other_kinds(
    connection: AsyncpgConnection, workers: list[LlmClaimer]
) -> None:
    """They share the organisation's permits."""
    await put_chats(connection, 5, "a:1")
    await put_queue(connection, 5)
    await set_limit(workers[0].worker.line, ConcurrencyLimit(ORG, "org", "", 1))
    await connection.execute(sql("claims/begin"))
    order = workers[1].worker.order(1)
    order.endpoints, order.timeouts = [ENDPOINT], [60.0]
    assert len(await LimitedClaim(connection, order).claim()) == 1
    claim = asyncio.create_task(workers[0].claim(offer()))
    await until_blocked(connection, "coatcheck test claimer")
    await connection.execute("COMMIT")
    assert await claim == []
