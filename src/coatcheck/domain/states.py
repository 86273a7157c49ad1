"""The states of a job, the events that move it, and the one table of legal transitions.

Everything else is derived from this table or checked against it: the SQL under ``store/sql`` is
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


class Event(StrEnum):
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


def _table() -> dict[tuple[State, Event], State]:
    table: dict[tuple[State, Event], State] = {
        (State.STAGED, Event.DUE): State.QUEUED,
        (State.RETRYING, Event.DUE): State.QUEUED,
        (State.QUEUED, Event.CLAIM): State.DISPATCHING,
        (State.DISPATCHING, Event.START): State.PROCESSING,
        (State.PROCESSING, Event.FINALIZE): State.FINALIZING,
    }
    for waiting in WAITING:
        table[waiting, Event.CANCEL] = State.CANCELLED
        table[waiting, Event.EXPIRE] = State.FAILED
    for running in RUNNING:
        # A short job ends before its start is recorded, so `dispatching` can end like `processing`.
        table[running, Event.COMPLETE] = State.COMPLETED
        table[running, Event.FAIL] = State.FAILED
        table[running, Event.RETRY] = State.RETRYING
        table[running, Event.UNREACHABLE] = State.RETRYING
        table[running, Event.POSTPONE] = State.RETRYING
        table[running, Event.RELEASE] = State.QUEUED
        table[running, Event.CRASH] = State.QUEUED
        table[running, Event.CRASH_AGAIN] = State.RETRYING
        table[running, Event.CANCEL] = State.CANCEL_REQUESTED
    # After a cancellation request, a job that ended keeps its true end; one that would have run
    # again is cancelled.
    asked = State.CANCEL_REQUESTED
    table[asked, Event.COMPLETE] = State.COMPLETED
    table[asked, Event.FAIL] = State.FAILED
    for would_run_again in (
        Event.RETRY,
        Event.UNREACHABLE,
        Event.POSTPONE,
        Event.RELEASE,
        Event.CRASH,
        Event.CRASH_AGAIN,
    ):
        table[asked, would_run_again] = State.CANCELLED
    table[asked, Event.ACKNOWLEDGE_CANCEL] = State.CANCELLED
    return table


TRANSITIONS: Final = MappingProxyType(_table())

EDGES: Final = frozenset((source, target) for (source, _), target in TRANSITIONS.items())
"""Every pair of states that some event connects; the test trigger allows only these."""


def after(state: State, event: Event) -> State | None:
    """The state that ``event`` leads to from ``state``, or None if it changes nothing."""
    return TRANSITIONS.get((state, event))
