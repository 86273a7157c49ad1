"""Getting, waiting for and listing jobs, and what one organisation sees of another's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from coatcheck.core import Engine, Submission
from coatcheck.core.queries import reports
from coatcheck.domain.errors import InvalidSubmission, JobNotFound
from coatcheck.domain.ids import new_id, to_text
from coatcheck.domain.lanes import Lane
from coatcheck.domain.states import State, TransitionEvent
from tests.db.claimer import Claimer, claimer
from tests.db.rows import ENDPOINT


@pytest.fixture
async def worker(dsn: str) -> AsyncIterator[Claimer]:
    async with claimer(dsn) as registered:
        yield registered


async def test_a_foreign_an_absent_and_a_malformed_id_are_the_same(engine: Engine) -> None:
    theirs = await engine.submit(ENDPOINT, org="them")
    answers = []
    for job_id in (theirs.id, to_text(new_id()), "not an id", "", "8" * 26, "ö" * 26):
        with pytest.raises(JobNotFound) as refusal:
            await engine.get(job_id, org="us")
        answers.append((str(refusal.value), refusal.value.code))
        with pytest.raises(JobNotFound) as refusal:
            await engine.cancel(job_id, org="us")
        answers.append((str(refusal.value), refusal.value.code))
    assert set(answers) == {("there is no such job", "job_not_found")}
    assert (await engine.get(theirs.id, org="them")).state is State.QUEUED


async def test_nobody_sees_another_s_jobs_events_or_artifacts(
    engine: Engine, worker: Claimer
) -> None:
    theirs = await engine.submit(ENDPOINT, org="them")
    (job,) = await worker.claim(1)
    await reports.add_events(worker.line, [(job, "text", b"theirs")], write_id=1)
    await reports.add_artifact(
        worker.line,
        job,
        name="a.txt",
        blob_key="artifacts/a",
        media_type="text/plain",
        size=1,
        sha256=b"\0" * 32,
    )
    seen = []
    for org in ("us", "them"):
        listed = await engine.list(org=org)
        events = await engine.events(theirs.id, org=org)
        artifacts = await engine.artifacts(theirs.id, org=org)
        seen.append((len(listed), len(events), len(artifacts)))
    assert seen == [(0, 0, 0), (1, 1, 1)]


async def test_a_job_is_seen_as_it_was_submitted(engine: Engine) -> None:
    ticket = await engine.submit(
        ENDPOINT,
        {"a": 1},
        lane="bulk",
        queue_key="run 7",
        idempotency_key="k",
        request_id="r",
        retries=9,
    )
    view = await engine.get(ticket.id)
    assert (view.id, view.org, view.endpoint) == (ticket.id, "default", ENDPOINT)
    assert (view.lane, view.queue_key, view.state) == (Lane.BULK, "run 7", State.QUEUED)
    assert (view.idempotency_key, view.request_id, view.failures_max) == ("k", "r", 9)
    assert (view.terminal, view.attempts, view.result) == (False, 0, None)


@pytest.mark.parametrize(("lane", "retries"), [("urgent", 5), ("standard", 3), ("bulk", 3)])
async def test_a_lane_says_how_often_its_jobs_are_retried(
    lane: str, retries: int, engine: Engine
) -> None:
    ticket = await engine.submit(ENDPOINT, lane=lane)
    assert (await engine.get(ticket.id)).failures_max == retries


async def test_a_result_comes_back_byte_for_byte(engine: Engine, worker: Claimer) -> None:
    ticket = await engine.submit(ENDPOINT)
    (job,) = await worker.claim(1)
    result = '{"n": 12345678901234567890, "s": "ö\\u0000"}'.encode()
    await worker.complete(job, result=result)
    assert (await engine.get(ticket.id)).result == result


async def test_waiting_returns_when_the_job_has_ended(engine: Engine, worker: Claimer) -> None:
    ticket = await engine.submit(ENDPOINT)
    waiting = asyncio.create_task(engine.wait(ticket.id))
    (job,) = await worker.claim(1)
    await worker.settle(job, TransitionEvent.FAIL, code="no_good")
    view = await waiting
    assert (view.state, view.error_code, view.terminal) == (State.FAILED, "no_good", True)


async def test_waiting_is_woken_by_a_notification(engine: Engine) -> None:
    """A cancel tells who waits; without it, the wait would look again only after a while."""
    ticket = await engine.submit(ENDPOINT)
    waiting = asyncio.create_task(engine.wait(ticket.id))
    await engine.cancel(ticket.id)
    assert (await waiting).state is State.CANCELLED


async def test_waiting_ends_at_its_timeout_with_the_job_as_it_is(engine: Engine) -> None:
    ticket = await engine.submit(ENDPOINT)
    view = await engine.wait(ticket.id, timeout=0.01)
    assert (view.state, view.terminal) == (State.QUEUED, False)


async def test_waiting_since_a_view_returns_at_the_next_change(
    engine: Engine, worker: Claimer
) -> None:
    ticket = await engine.submit(ENDPOINT)
    seen = await engine.get(ticket.id)
    waiting = asyncio.create_task(engine.wait(ticket.id, since=seen))
    await worker.claim(1)
    assert (await waiting).state is State.DISPATCHING


async def test_waiting_for_no_job_is_no_wait(engine: Engine) -> None:
    with pytest.raises(JobNotFound):
        await engine.wait(to_text(new_id()))


async def test_jobs_are_listed_newest_first_a_page_at_a_time(engine: Engine) -> None:
    tickets = await engine.submit_many([Submission(ENDPOINT) for _ in range(7)])
    newest_first = [ticket.id for ticket in reversed(tickets)]
    first = [view.id for view in await engine.list(limit=3)]
    second = [view.id for view in await engine.list(limit=3, after=first[-1])]
    third = [view.id for view in await engine.list(limit=3, after=second[-1])]
    assert (first, second, third) == (newest_first[:3], newest_first[3:6], newest_first[6:])


async def test_a_list_can_be_narrowed(engine: Engine) -> None:
    urgent = await engine.submit(ENDPOINT, lane="urgent")
    other = await engine.submit("demo.post__other")
    cancelled = await engine.submit(ENDPOINT)
    await engine.cancel(cancelled.id)
    assert [view.id for view in await engine.list(lane=Lane.URGENT)] == [urgent.id]
    assert [view.id for view in await engine.list(endpoint="demo.post__other")] == [other.id]
    assert [view.id for view in await engine.list(states=[State.CANCELLED])] == [cancelled.id]


@pytest.mark.parametrize("limit", [0, -1, 201])
async def test_a_page_has_bounds(limit: int, engine: Engine) -> None:
    with pytest.raises(InvalidSubmission, match="limit: must be 1 to 200"):
        await engine.list(limit=limit)


async def test_health_counts_the_jobs_that_wait_and_run(engine: Engine, worker: Claimer) -> None:
    await engine.submit_many([Submission(ENDPOINT) for _ in range(3)])
    await engine.submit(ENDPOINT, delay=60)
    (job,) = await worker.claim(1)
    await worker.complete(job)
    await worker.claim(1)
    health = await engine.health()
    assert health.depth == {
        (Lane.STANDARD, State.QUEUED): 1,
        (Lane.STANDARD, State.STAGED): 1,
        (Lane.STANDARD, State.DISPATCHING): 1,
    }
