"""Every event of the domain's table, done to a job the way the product does it."""

from __future__ import annotations

from typing import assert_never

from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.limits import CRASHES_MAX
from coatcheck.domain.states import Event
from coatcheck.store import jobs, leases, upkeep
from tests.store.claimer import KEEP_FAILED_SECONDS, Claimer

ROWS_MAX = 100


async def happen(event: Event, job: ClaimedJob, worker: Claimer) -> None:
    """Make ``event`` happen to ``job``, or try to."""
    match event:
        case Event.DUE:
            await upkeep.stage(worker.line, ROWS_MAX)
        case Event.CLAIM:
            await worker.claim(ROWS_MAX)
        case Event.START:
            await leases.mark_started(worker.line, [(job, 0.5)])
        case Event.COMPLETE:
            await worker.complete(job)
        case (
            Event.FAIL | Event.RETRY | Event.UNREACHABLE | Event.RELEASE | Event.ACKNOWLEDGE_CANCEL
        ):
            await worker.settle(job, event)
        case Event.CRASH:
            await fall_silent(worker)
            await upkeep.rescue(
                worker.line,
                crashes_max=CRASHES_MAX,
                keep_failed_seconds=KEEP_FAILED_SECONDS,
                rows_max=ROWS_MAX,
            )
        case Event.CANCEL:
            await jobs.cancel(worker.line, job.org, job.uuid, KEEP_FAILED_SECONDS)
        case Event.EXPIRE:
            await upkeep.expire_waiting(
                worker.line, keep_failed_seconds=KEEP_FAILED_SECONDS, rows_max=ROWS_MAX
            )
        case Event.FINALIZE:
            raise NotImplementedError("no statement makes it yet")
        case _:
            assert_never(event)


async def fall_silent(worker: Claimer) -> None:
    """The worker was last heard of longer ago than any lane allows."""
    await worker.line.fetch(
        "UPDATE workers SET last_seen_at = now() - interval '1 hour' WHERE boot = $1", worker.boot
    )
