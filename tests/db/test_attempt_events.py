"""What a job's timeline is made of: an event for each attempt that did not complete."""

from __future__ import annotations

from typing import Any

import msgspec

from coatcheck.domain.ids import new_id
from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.states import State, TransitionEvent
from tests.db.claimer import Claimer
from tests.db.edge_guard import AsyncpgConnection
from tests.db.events_on_a_database import happen
from tests.db.rows import put_job


async def told(connection: AsyncpgConnection, job: ClaimedJob) -> list[dict[str, Any]]:
    rows = await connection.fetch(
        "SELECT data FROM job_events WHERE job_id = $1 AND kind = 'attempt' ORDER BY seq", job.uuid
    )
    return [msgspec.json.decode(row["data"]) for row in rows]


async def test_each_way_to_end_an_attempt_is_told_with_where_it_led(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    for before, event, outcome, attempt, after in (
        (State.PROCESSING, TransitionEvent.RETRY, "failed", 1, "retrying"),
        (State.PROCESSING, TransitionEvent.FAIL, "failed", 1, "failed"),
        (State.PROCESSING, TransitionEvent.UNREACHABLE, "target_unreachable", 1, "retrying"),
        (State.PROCESSING, TransitionEvent.POSTPONE, "postponed", 1, "retrying"),
        (State.DISPATCHING, TransitionEvent.RELEASE, "interrupted", 1, "queued"),
        (State.PROCESSING, TransitionEvent.CRASH, "crashed", 1, "queued"),
        (State.CANCEL_REQUESTED, TransitionEvent.ACKNOWLEDGE_CANCEL, "cancelled", 1, "cancelled"),
        (State.CANCEL_REQUESTED, TransitionEvent.RETRY, "failed", 1, "cancelled"),
    ):
        job = await put_job(connection, before)
        await happen(event, job, worker)
        (event_told,) = await told(connection, job)
        assert (event_told["outcome"], event_told["attempt"], event_told["state"]) == (
            outcome,
            attempt,
            after,
        ), event
        assert event_told["dispatched_at"] is not None
        assert (event_told["next_run_at"] is not None) == (after == "retrying")
    completed = await put_job(connection, State.PROCESSING)
    await happen(TransitionEvent.COMPLETE, completed, worker)
    assert await told(connection, completed) == []


async def test_only_the_first_hundred_attempts_are_told_and_none_of_tasks(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    for interruptions, expected in ((99, 1), (100, 0)):
        job = await put_job(connection, State.DISPATCHING, interruptions=interruptions)
        await happen(TransitionEvent.RELEASE, job, worker)
        assert len(await told(connection, job)) == expected
    task = await put_job(connection, State.PROCESSING, run_id=new_id(), task_index=0)
    await happen(TransitionEvent.RETRY, task, worker)
    assert await told(connection, task) == []
