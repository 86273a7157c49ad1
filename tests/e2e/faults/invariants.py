"""The invariants A to F of the design, asked of a database."""

from __future__ import annotations

from coatcheck import JobView, State, Ticket
from coatcheck.core.queries import leases, reports
from coatcheck.core.queries.leases import ClaimOrder, FinishedJob, Settlement
from coatcheck.db.connection import Connection
from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.lanes import Lane
from coatcheck.domain.states import TransitionEvent
from tests.deployment import Deployment
from tests.e2e.faults import history

_SNAPSHOT = """
SELECT (SELECT array_agg(j::text ORDER BY j.id) FROM jobs AS j),
       (SELECT array_agg(e::text ORDER BY e.seq) FROM job_events AS e),
       (SELECT array_agg(a::text ORDER BY a.name) FROM artifacts AS a)
"""


async def no_dead_state(deployment: Deployment) -> None:
    """E. Whatever has not ended has something that moves it on: the queue, a time, or a holder."""
    rows = await deployment.sql.fetch(
        """
        SELECT j.state, j.run_at, j.lease, j.payload IS NULL AS empty FROM jobs AS j
        WHERE j.state NOT IN ('completed', 'failed', 'cancelled')
        """
    )
    for row in rows:
        state = State(row["state"])
        assert not row["empty"], f"{state} without its payload"
        assert (row["lease"] is not None) == state.held
        if state in (State.STAGED, State.RETRYING):
            assert row["run_at"] is not None


async def one_key_one_job(deployment: Deployment, submission: dict[str, object]) -> Ticket:
    """B. The same submission again, and again: the job it names, and no second one."""
    first = await deployment.engine.submit(**submission)  # type: ignore[arg-type]
    second = await deployment.engine.submit(**submission)  # type: ignore[arg-type]
    assert (second.id, second.created, second.mismatch) == (first.id, False, False)
    jobs = await deployment.sql.fetchval(
        "SELECT count(*) FROM jobs WHERE idempotency_key = $1", submission["idempotency_key"]
    )
    assert jobs == 1
    return first


async def one_end(deployment: Deployment, view: JobView) -> None:
    """A and D. It has ended, once, by legal steps; its result is there, and its payload gone unless
    it may be retried."""
    steps = [each for each in await history.read(deployment.sql) if each.id == view.uuid]
    assert all(step.legal for step in steps), steps
    assert sum(step.after.terminal for step in steps) == 1, steps
    assert steps[-1].after is view.state
    row = await deployment.sql.fetchrow(
        "SELECT payload IS NULL AS empty, keeps_input FROM jobs WHERE id = $1", view.uuid
    )
    assert row["empty"] == (view.state is State.COMPLETED or not row["keeps_input"])
    assert (view.result is not None) == (view.state is State.COMPLETED)


async def stale_writes_change_nothing(deployment: Deployment, view: JobView) -> None:
    """C. Every write of a holder, under every lease the job ever had, and one it never had."""
    steps = [each for each in await history.read(deployment.sql) if each.id == view.uuid]
    tried = {step.lease for step in steps if step.lease is not None} | {(1 << 40) | 0xFFFF}
    before = await deployment.sql.fetchrow(_SNAPSHOT)
    line = Connection(deployment.dsn, name="stale holder")
    try:
        for lease in sorted(tried):
            await _write_everything(line, _claimed(view, lease))
    finally:
        await line.close()
    assert await deployment.sql.fetchrow(_SNAPSHOT) == before


async def _write_everything(line: Connection, job: ClaimedJob) -> None:
    nothing = ClaimOrder([], [], [], [], job.lease, {})
    _, accepted = await leases.exchange(line, nothing, [FinishedJob(job, b'"stale"', 0.0)], 60)
    assert accepted == set()
    for event in (
        TransitionEvent.FAIL,
        TransitionEvent.RETRY,
        TransitionEvent.RELEASE,
        TransitionEvent.ACKNOWLEDGE_CANCEL,
    ):
        assert await leases.settle(line, [Settlement(job, event, "x", "x", 0.0, 0.0)], 60) == {}
    assert await leases.mark_started(line, [(job, 0.0)]) == set()
    assert await leases.release_claim(line, job.lease, 60) == []
    await reports.set_progress(line, [(job, 0.9, "stale")])
    await reports.add_events(line, [(job, "log", b"stale")], 1)
    stored, _ = await reports.add_artifact(
        line, job, name="stale", blob_key="stale", media_type="a/b", size=1, sha256=b"stale"
    )
    assert not stored


def _claimed(view: JobView, lease: int) -> ClaimedJob:
    return ClaimedJob(
        view.org, view.uuid, Lane(view.lane), view.endpoint, view.queue_key, b"{}",
        1, 0, 0, None, None, lease,
    )  # fmt: skip
