"""One idempotency key, one job, however many ask for it at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from coatcheck.core import Engine, Submission, Ticket
from coatcheck.core.queries import maintenance
from coatcheck.db.connection import Connection
from coatcheck.domain.ids import from_text
from tests.db.edge_guard import AsyncpgConnection
from tests.db.rows import ENDPOINT


def assert_one_job(tickets: Iterable[Ticket]) -> None:
    """All tickets name the same job, and one of them made it."""
    tickets = list(tickets)
    assert len({ticket.id for ticket in tickets}) == 1
    assert sum(ticket.created for ticket in tickets) == 1


async def test_a_hundred_at_once_get_one_job(engine: Engine, connection: AsyncpgConnection) -> None:
    tickets = await asyncio.gather(
        *(engine.submit(ENDPOINT, {"a": 1}, idempotency_key="k") for _ in range(100))
    )
    assert_one_job(tickets)
    assert await connection.fetchval("SELECT count(*) FROM jobs") == 1


async def test_a_hundred_at_two_replicas_get_one_job(
    engine: Engine, rival_engine: Engine, connection: AsyncpgConnection
) -> None:
    tickets = await asyncio.gather(
        *(
            replica.submit(ENDPOINT, {"a": 1}, idempotency_key="k")
            for _ in range(50)
            for replica in (engine, rival_engine)
        )
    )
    assert_one_job(tickets)
    assert await connection.fetchval("SELECT count(*) FROM jobs") == 1


async def test_single_and_bulk_submissions_of_a_key_get_one_job(
    engine: Engine, rival_engine: Engine, connection: AsyncpgConnection
) -> None:
    def bulk(replica: Engine) -> asyncio.Future[list[Ticket]]:
        keyed = Submission(ENDPOINT, {"a": 1}, idempotency_key="k")
        return asyncio.ensure_future(replica.submit_many([Submission(ENDPOINT), keyed]))

    singles = [
        asyncio.ensure_future(replica.submit(ENDPOINT, {"a": 1}, idempotency_key="k"))
        for _ in range(20)
        for replica in (engine, rival_engine)
    ]
    bulks = [bulk(replica) for _ in range(5) for replica in (engine, rival_engine)]
    tickets = [await single for single in singles] + [(await many)[1] for many in bulks]
    assert_one_job(tickets)
    assert await connection.fetchval("SELECT count(*) FROM jobs") == 1 + len(bulks)


async def test_a_key_twice_in_one_bulk_submission_gets_one_job(engine: Engine) -> None:
    keyed = Submission(ENDPOINT, {"a": 1}, idempotency_key="k")
    assert_one_job(await engine.submit_many([keyed, keyed, keyed]))


async def test_each_organisation_has_keys_of_its_own(engine: Engine) -> None:
    first, second = await asyncio.gather(
        *(engine.submit(ENDPOINT, {"a": 1}, idempotency_key="k", org=org) for org in ("a", "b"))
    )
    assert first.created
    assert second.created
    assert first.id != second.id


async def test_jobs_without_a_key_are_always_new(engine: Engine) -> None:
    tickets = [await engine.submit(ENDPOINT, {"a": 1}) for _ in range(3)]
    assert len({ticket.id for ticket in tickets}) == 3
    assert all(ticket.created for ticket in tickets)


async def test_the_same_payload_under_a_known_key_is_no_mismatch(engine: Engine) -> None:
    await engine.submit(ENDPOINT, {"a": 1}, idempotency_key="k")
    again = await engine.submit(ENDPOINT, {"a": 1}, idempotency_key="k")
    assert (again.created, again.mismatch) == (False, False)


async def test_another_payload_under_a_known_key_is_flagged_and_finds_the_first_job(
    engine: Engine,
) -> None:
    first = await engine.submit(ENDPOINT, {"a": 1}, idempotency_key="k")
    other_payload = await engine.submit(ENDPOINT, {"a": 2}, idempotency_key="k")
    other_endpoint = await engine.submit("demo.post__other", {"a": 1}, idempotency_key="k")
    for later in (other_payload, other_endpoint):
        assert later.id == first.id
        assert (later.created, later.mismatch) == (False, True)


async def test_a_replay_shows_the_state_the_job_has_now(engine: Engine) -> None:
    first = await engine.submit(ENDPOINT, idempotency_key="k")
    await engine.cancel(first.id)
    again = await engine.submit(ENDPOINT, idempotency_key="k")
    assert (again.id, again.state) == (first.id, "cancelled")


async def test_a_key_is_free_again_once_its_job_was_pruned(
    engine: Engine, connection: AsyncpgConnection, dsn: str
) -> None:
    first = await engine.submit(ENDPOINT, idempotency_key="k", keep_failed=0)
    await engine.cancel(first.id)
    line = Connection(dsn, name="test prune")
    assert (await maintenance.prune(line, 10)).jobs == 1
    await line.close()
    second = await engine.submit(ENDPOINT, idempotency_key="k")
    assert second.created
    assert second.id != first.id
    assert [row["id"] for row in await connection.fetch("SELECT id FROM jobs")] == [
        from_text(second.id)
    ]
