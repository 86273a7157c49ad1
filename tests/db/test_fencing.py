"""A holder whose lease has moved on changes nothing, whatever it writes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace

from coatcheck.core.queries import leases, reports
from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.states import HELD, State, TransitionEvent
from tests.db.claimer import Claimer
from tests.db.edge_guard import AsyncpgConnection
from tests.db.rows import put_job, row_of

Write = Callable[[Claimer, ClaimedJob], Awaitable[object]]


async def attach(worker: Claimer, job: ClaimedJob) -> tuple[bool, str | None]:
    return await reports.add_artifact(
        worker.line,
        job,
        name="a.txt",
        blob_key="artifacts/a",
        media_type="text/plain",
        size=1,
        sha256=b"\0" * 32,
    )


WRITES: dict[str, Write] = {
    "complete": lambda worker, job: worker.complete(job),
    "complete and notify": lambda worker, job: worker.complete_and_notify(job),
    "start": lambda worker, job: leases.mark_started(worker.line, [(job, 0.5)]),
    "progress": lambda worker, job: reports.set_progress(worker.line, [(job, 0.5, "half")]),
    "log": lambda worker, job: reports.add_events(worker.line, [(job, "log", b"{}")], write_id=1),
    "attach": attach,
    **{
        event.value: lambda worker, job, event=event: worker.settle(job, event)
        for event in (
            TransitionEvent.FAIL,
            TransitionEvent.RETRY,
            TransitionEvent.UNREACHABLE,
            TransitionEvent.RELEASE,
            TransitionEvent.ACKNOWLEDGE_CANCEL,
        )
    },
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
async def test_a_stale_holder_changes_nothing(
    write: Write, connection: AsyncpgConnection, worker: Claimer
) -> None:
    held = [await put_job(connection, state) for state in sorted(HELD)]
    before = [await row_of(connection, job) for job in held]
    for job in held:
        await write(worker, replace(job, lease=job.lease - 1))
        await write(worker, replace(job, org="someone else"))
    assert [await row_of(connection, job) for job in held] == before
    assert await connection.fetchval("SELECT count(*) FROM job_events") == 0
    assert await connection.fetchval("SELECT count(*) FROM artifacts") == 0


async def test_a_stale_holder_is_told_so(connection: AsyncpgConnection, worker: Claimer) -> None:
    job = await put_job(connection, State.PROCESSING)
    stale = replace(job, lease=job.lease - 1)
    assert await worker.complete(stale) == 0
    assert await worker.settle(stale, TransitionEvent.FAIL) is None
    assert await leases.mark_started(worker.line, [(stale, 0.5)]) == set()
    assert await attach(worker, stale) == (False, None)


async def test_one_stale_completion_does_not_hold_up_the_others(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    jobs = [await put_job(connection, State.PROCESSING) for _ in range(3)]
    stale = replace(jobs[1], lease=jobs[1].lease - 1)
    assert await worker.complete(jobs[0], stale, jobs[2]) == 2
    states = [(await row_of(connection, job))["state"] for job in jobs]
    assert states == ["completed", "processing", "completed"]


async def test_every_claim_has_a_lease_that_no_other_had(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    await put_job(connection)
    seen = set()
    for _ in range(5):
        (job,) = await worker.claim(1)
        seen.add(job.lease)
        await worker.settle(job, TransitionEvent.RELEASE)
    assert len(seen) == 5
    assert {lease >> 40 for lease in seen} == {worker.boot}
