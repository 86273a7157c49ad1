"""The states of a job, the events that move it, and the one table of legal transitions.

Everything else is derived from this table or checked against it: the SQL under ``core/sql`` is
tested pair by pair against it on a real database, the test trigger that rejects illegal edges is
generated from it, and so is the diagram in ``docs/reference/states.md``.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import Final


class State(StrEnum):
    """The state of a job. ``terminal`` says whether it is final."""

    STAGED = "staged"
    QUEUED = "queued"
    DISPATCHING = "dispatching"
    PROCESSING = "processing"
    FINALIZING = "finalizing"
    RETRYING = "retrying"
    CANCEL_REQUESTED = "cancel_requested"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def terminal(self) -> bool:
        return self in TERMINAL

    @property
    def held(self) -> bool:
        """Whether a worker holds a lease on a job in this state."""
        return self in HELD


class TransitionEvent(StrEnum):
    """What can happen to a job. The comment names the cause."""

    DUE = "due"  # the stager: its run_at has come
    CLAIM = "claim"  # a worker claims it
    START = "start"  # its holder: the handler has been running for a while
    FINALIZE = "finalize"  # its holder: the remote work is done, its result is being stored
    COMPLETE = "complete"  # its holder: the handler returned
    FAIL = "fail"  # its holder or the rescuer: failed for good, or no attempt is left
    RETRY = "retry"  # its holder: failed, and an attempt is left
    UNREACHABLE = "unreachable"  # its holder: the target was unreachable; spends no attempt
    POSTPONE = "postpone"  # its holder: to be retried later; spends no attempt
    RELEASE = "release"  # its holder: interrupted by a drain; spends no attempt
    CRASH = "crash"  # the rescuer: its holder died or went silent, for the first time
    CRASH_AGAIN = "crash_again"  # the rescuer: the same, and not for the first time; due later
    CANCEL = "cancel"  # the caller requests it
    ACKNOWLEDGE_CANCEL = "acknowledge_cancel"  # its holder has stopped as requested
    EXPIRE = "expire"  # the expirer: it did not start before its deadline


INITIAL: Final = frozenset({State.STAGED, State.QUEUED})
TERMINAL: Final = frozenset({State.COMPLETED, State.FAILED, State.CANCELLED})
WAITING: Final = frozenset({State.STAGED, State.QUEUED, State.RETRYING})
RUNNING: Final = frozenset({State.DISPATCHING, State.PROCESSING, State.FINALIZING})
HELD: Final = RUNNING | {State.CANCEL_REQUESTED}


def _table() -> dict[tuple[State, TransitionEvent], State]:
    table: dict[tuple[State, TransitionEvent], State] = {
        (State.STAGED, TransitionEvent.DUE): State.QUEUED,
        (State.RETRYING, TransitionEvent.DUE): State.QUEUED,
        (State.QUEUED, TransitionEvent.CLAIM): State.DISPATCHING,
        (State.DISPATCHING, TransitionEvent.START): State.PROCESSING,
        (State.PROCESSING, TransitionEvent.FINALIZE): State.FINALIZING,
    }
    for waiting in WAITING:
        table[waiting, TransitionEvent.CANCEL] = State.CANCELLED
        table[waiting, TransitionEvent.EXPIRE] = State.FAILED
    for running in RUNNING:
        # A short job ends before its start is recorded, so `dispatching` can end like `processing`.
        table[running, TransitionEvent.COMPLETE] = State.COMPLETED
        table[running, TransitionEvent.FAIL] = State.FAILED
        table[running, TransitionEvent.RETRY] = State.RETRYING
        table[running, TransitionEvent.UNREACHABLE] = State.RETRYING
        table[running, TransitionEvent.POSTPONE] = State.RETRYING
        table[running, TransitionEvent.RELEASE] = State.QUEUED
        table[running, TransitionEvent.CRASH] = State.QUEUED
        table[running, TransitionEvent.CRASH_AGAIN] = State.RETRYING
        table[running, TransitionEvent.CANCEL] = State.CANCEL_REQUESTED
    # After a cancellation request, a job that ended keeps its true end; one that would have run
    # again is cancelled.
    asked = State.CANCEL_REQUESTED
    table[asked, TransitionEvent.COMPLETE] = State.COMPLETED
    table[asked, TransitionEvent.FAIL] = State.FAILED
    for would_run_again in (
        TransitionEvent.RETRY,
        TransitionEvent.UNREACHABLE,
        TransitionEvent.POSTPONE,
        TransitionEvent.RELEASE,
        TransitionEvent.CRASH,
        TransitionEvent.CRASH_AGAIN,
    ):
        table[asked, would_run_again] = State.CANCELLED
    table[asked, TransitionEvent.ACKNOWLEDGE_CANCEL] = State.CANCELLED
    return table


TRANSITIONS: Final = MappingProxyType(_table())

EDGES: Final = frozenset((source, target) for (source, _), target in TRANSITIONS.items())
"""Every pair of states that some event connects; the test trigger allows only these."""


def after(state: State, event: TransitionEvent) -> State | None:
    """The state that ``event`` leads to from ``state``, or None if it changes nothing."""
    return TRANSITIONS.get((state, event))
