"""With many jobs to complete, a worker completes and claims at the same time, in two statements."""

from __future__ import annotations

from collections import Counter

import pytest

from coatcheck import Service, State, Submission
from tests.db.rows import count_by_state
from tests.deployment import Deployment
from tests.waiting import eventually_async

JOBS = 3_000


@pytest.mark.parametrize(
    ("table", "event"),
    [("queue", "DELETE"), ("jobs", "UPDATE OF result")],
    ids=["the claim fails", "the completion fails"],
)
async def test_if_one_of_the_two_fails_the_other_counts_and_nothing_is_done_twice(
    deployment: Deployment, table: str, event: str
) -> None:
    service = Service("lab")
    ran: Counter[int] = Counter()

    @service.post("/count")
    async def count(n: int) -> int:
        ran[n] += 1
        return n

    await deployment.engine.submit_many(
        [Submission("lab.post__count", {"n": n}) for n in range(JOBS)]
    )
    # The sequence goes on although the statement is undone: each of these fails once.
    await deployment.sql.execute(
        f"""
        CREATE SEQUENCE rows_seen;
        CREATE FUNCTION refuse_some() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF nextval('rows_seen') IN (5, 20) THEN
                RAISE EXCEPTION 'not this time';
            END IF;
            RETURN coalesce(NEW, OLD);
        END $$;
        CREATE TRIGGER refuse_some BEFORE {event} ON {table}
        FOR EACH ROW EXECUTE FUNCTION refuse_some();
        """
    )
    await deployment.start_worker(service)

    async def all_ended() -> bool:
        return await count_by_state(deployment.sql) == {State.COMPLETED: JOBS}

    await eventually_async(all_ended, "all jobs are completed")
    assert ran == Counter(range(JOBS))
    again = "SELECT count(*) FROM jobs WHERE failures + crashes + interruptions > 0"
    assert await deployment.sql.fetchval(again) == 0
    assert await deployment.sql.fetchval("SELECT last_value FROM rows_seen") > 20
