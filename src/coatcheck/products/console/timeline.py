"""What happened to a job, in order: put together of its row and of what became of its attempts.

The row says how the job stands and when it last moved; each attempt that did not complete has left
an event (``core/sql/job_events/attempt.sql``). Of the first hundred attempts all is known, of later
ones only the last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from coatcheck.domain.org_jobs import Attempt, ConsoleJob
from coatcheck.domain.states import State
from coatcheck.products.console.schemas import TimelineItem, TimelineKind

_OUTCOMES: Final[dict[str, TimelineKind]] = {
    "failed": "attempt_failed",
    "crashed": "crashed",
    "interrupted": "interrupted",
    "target_unreachable": "target_unreachable",
    "postponed": "postponed",
    "cancelled": "interrupted",
}


def timeline(
    job: ConsoleJob, attempts: Sequence[Attempt], spawned_at: datetime | None
) -> list[TimelineItem]:
    """The story of a job. ``spawned_at`` is when a remote last began to work for it."""
    items = [
        *_beginning(job, attempts),
        *(item for attempt in attempts for item in _attempt(attempt)),
        *_under_way(job, attempts, spawned_at),
        *_end(job),
    ]
    # What is of one moment stays in this order.
    return sorted(items, key=lambda item: item.at)


def _beginning(job: ConsoleJob, attempts: Sequence[Attempt]) -> Iterator[TimelineItem]:
    view = job.view
    waits = not attempts and view.run_at > view.created_at
    first = State.STAGED if waits else State.QUEUED
    yield _item(view.created_at, "created", first)
    if not waits:
        yield _item(view.created_at, "queued", State.QUEUED)
        return
    yield _item(view.created_at, "scheduled", State.STAGED, message=_due(view.run_at))
    if view.state is not State.STAGED and (view.finished_at or view.read_at) >= view.run_at:
        yield _item(view.run_at, "queued", State.QUEUED)


def _attempt(attempt: Attempt) -> Iterator[TimelineItem]:
    number = attempt.attempt
    yield from _begun(attempt.dispatched_at, attempt.started_at, number)
    state = State(attempt.state)
    yield TimelineItem(
        attempt.ended_at,
        _OUTCOMES[attempt.outcome],
        state,
        number,
        attempt.code,
        attempt.message,
    )
    if attempt.next_run_at is not None:
        message = _due(attempt.next_run_at)
        yield _item(attempt.ended_at, "retry_scheduled", state, attempt=number, message=message)


def _under_way(
    job: ConsoleJob, attempts: Sequence[Attempt], spawned_at: datetime | None
) -> Iterator[TimelineItem]:
    """The attempt that goes on, or that completed the job: the one whose end was not told."""
    view = job.view
    told = {attempt.dispatched_at for attempt in attempts}
    is_new = view.dispatched_at is not None and view.dispatched_at not in told
    if is_new and (view.state.held or view.terminal):
        number = view.failures + view.crashes + (view.state.held or view.state is State.COMPLETED)
        yield from _begun(view.dispatched_at, view.started_at, number or None)
    if spawned_at is not None:
        yield _item(
            spawned_at,
            "remote_spawned",
            State.PROCESSING,
            message=f"the remote calls it {view.execution_id}" if view.execution_id else None,
        )
    if view.state is State.CANCEL_REQUESTED:
        yield _item(view.updated_at, "cancel_requested", view.state)


def _begun(
    dispatched_at: datetime | None, started_at: datetime | None, number: int | None
) -> Iterator[TimelineItem]:
    if dispatched_at is not None:
        yield _item(dispatched_at, "claimed", State.DISPATCHING, attempt=number)
    if started_at is not None:
        # It is counted from when the handler began, which may be told a little before the claim.
        at = started_at if dispatched_at is None else max(started_at, dispatched_at)
        yield _item(at, "started", State.PROCESSING, attempt=number)


def _end(job: ConsoleJob) -> Iterator[TimelineItem]:
    view = job.view
    if view.finished_at is not None:
        yield TimelineItem(
            view.finished_at, "finished", view.state, None, view.error_code, view.error_message
        )


def _item(
    at: datetime,
    kind: TimelineKind,
    state: State,
    *,
    attempt: int | None = None,
    message: str | None = None,
) -> TimelineItem:
    return TimelineItem(at, kind, state, attempt, None, message)


def _due(moment: datetime) -> str:
    return f"due at {moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
