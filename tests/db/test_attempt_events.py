"""What a job's timeline is made of: an event for each attempt that did not complete."""

from __future__ import annotations

from typing import Any

import msgspec

from coatcheck.domain.ids import new_id
from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.states import Event, State
from tests.db.claimer import Claimer
from tests.db.edge_guard import Connection
from tests.db.events_on_a_database import happen
from tests.db.rows import put_job


async def told(connection: Connection, job: ClaimedJob) -> list[dict[str, Any]]:
    rows = await connection.fetch(
        "SELECT data FROM job_events WHERE job_id = $1 AND kind = 'attempt' ORDER BY seq", job.uuid
    )
    return [msgspec.json.decode(row["data"]) for row in rows]


async def test_each_way_to_end_an_attempt_is_told_with_where_it_led(
    connection: Connection, worker: Claimer
) -> None:
    for before, event, outcome, attempt, after in (
        (State.PROCESSING, Event.RETRY, "failed", 1, "retrying"),
        (State.PROCESSING, Event.FAIL, "failed", 1, "failed"),
        (State.PROCESSING, Event.UNREACHABLE, "target_unreachable", 1, "retrying"),
        (State.PROCESSING, Event.POSTPONE, "postponed", 1, "retrying"),
        (State.DISPATCHING, Event.RELEASE, "interrupted", 1, "queued"),
        (State.PROCESSING, Event.CRASH, "crashed", 1, "queued"),
        (State.CANCEL_REQUESTED, Event.ACKNOWLEDGE_CANCEL, "cancelled", 1, "cancelled"),
        (State.CANCEL_REQUESTED, Event.RETRY, "failed", 1, "cancelled"),
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
    await happen(Event.COMPLETE, completed, worker)
    assert await told(connection, completed) == []


async def test_only_the_first_hundred_attempts_are_told_and_none_of_tasks(
    connection: Connection, worker: Claimer
) -> None:
    for interruptions, expected in ((99, 1), (100, 0)):
        job = await put_job(connection, State.DISPATCHING, interruptions=interruptions)
        await happen(Event.RELEASE, job, worker)
        assert len(await told(connection, job)) == expected
    task = await put_job(connection, State.PROCESSING, run_id=new_id(), task_index=0)
    await happen(Event.RETRY, task, worker)
    assert await told(connection, task) == []
