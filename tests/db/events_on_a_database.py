"""Every event of the domain's table, done to a job the way the product does it."""

from __future__ import annotations

from typing import assert_never
from uuid import uuid4

from msgspec.structs import asdict

from coatcheck.core.queries import jobs, leases, maintenance, remote_calls
from coatcheck.core.queries.remote_calls import ClaimedCall
from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.limits import CRASHES_MAX
from coatcheck.domain.states import TransitionEvent
from tests.db.claimer import KEEP_FAILED_SECONDS, Claimer

ROWS_MAX = 100
PARKED = """
    INSERT INTO remote_calls (org_id, job_id, begun_by, endpoint, pace_key, destination, spawned_at,
                              remote_id, lease, due_at)
    VALUES ($1, $2, $3, 'studio.post__render', '', '{}', now(), $4, $3, now())
    ON CONFLICT DO NOTHING
"""


async def happen(event: TransitionEvent, job: ClaimedJob, worker: Claimer) -> None:
    """Make ``event`` happen to ``job``, or try to."""
    match event:
        case TransitionEvent.DUE:
            await maintenance.queue_due(worker.line, ROWS_MAX)
        case TransitionEvent.CLAIM:
            await worker.claim(ROWS_MAX)
        case TransitionEvent.START:
            await leases.mark_started(worker.line, [(job, 0.5)])
        case TransitionEvent.COMPLETE:
            await worker.complete(job)
        case (
            TransitionEvent.FAIL
            | TransitionEvent.RETRY
            | TransitionEvent.UNREACHABLE
            | TransitionEvent.POSTPONE
            | TransitionEvent.RELEASE
            | TransitionEvent.ACKNOWLEDGE_CANCEL
        ):
            await worker.settle(job, event)
        case TransitionEvent.CRASH | TransitionEvent.CRASH_AGAIN:
            await fall_silent(worker)
            await maintenance.rescue(
                worker.line,
                crashes_max=CRASHES_MAX,
                keep_failed_seconds=KEEP_FAILED_SECONDS,
                rows_max=ROWS_MAX,
            )
        case TransitionEvent.CANCEL:
            await jobs.cancel(worker.line, job.org, job.uuid, KEEP_FAILED_SECONDS)
        case TransitionEvent.EXPIRE:
            await maintenance.expire_waiting(
                worker.line, keep_failed_seconds=KEEP_FAILED_SECONDS, rows_max=ROWS_MAX
            )
        case TransitionEvent.FINALIZE:
            call = call_of(job)
            await worker.line.fetch(PARKED, job.org, job.uuid, job.lease, call.remote_id)
            await remote_calls.finalize(worker.line, call, seconds=60)
        case _:
            assert_never(event)


def call_of(job: ClaimedJob) -> ClaimedCall:
    """The call that ``job`` waits for, as whoever looks at it has it."""
    return ClaimedCall(
        **asdict(job),
        destination=b"{}",
        remote_id="a job over there",
        polls=1,
        faults=0,
        state=None,
        is_held=True,
        is_overdue=False,
        owner="",
        spawned_seconds=0.0,
        ran_seconds=0.0,
        usual_seconds=None,
        spread_seconds=None,
        looker=uuid4(),
    )


async def fall_silent(worker: Claimer) -> None:
    """The worker was last heard of longer ago than any lane allows."""
    await worker.line.fetch(
        "UPDATE workers SET last_seen_at = now() - interval '1 hour' WHERE boot = $1", worker.boot
    )
