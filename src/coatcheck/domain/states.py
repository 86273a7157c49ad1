"""The states of a job, the events that move it, the one table of legal transitions, and the
outcomes of one attempt, each of which the worker maps to its event.

Everything else is derived from this table or checked against it: the SQL under ``core/sql`` is
tested pair by pair against it on a real database, the test trigger that rejects illegal edges is
generated from it, and so is the diagram in ``docs/reference/states.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import msgspec


class State(StrEnum):
    """The state of a job. Below each is what a job in it does."""

    STAGED = "staged"
    """is due later"""
    QUEUED = "queued"
    """waits for a worker"""
    DISPATCHING = "dispatching"
    """was claimed by a worker; its handler has just begun or is about to"""
    PROCESSING = "processing"
    """is running"""
    FINALIZING = "finalizing"
    """was finished by a remote; its result is being stored"""
    RETRYING = "retrying"
    """failed, or lost its worker more than once, and will run again later"""
    CANCEL_REQUESTED = "cancel_requested"
    """is running, and its worker was asked to stop it"""
    COMPLETED = "completed"
    """has a result"""
    FAILED = "failed"
    """has an error, and will not be retried"""
    CANCELLED = "cancelled"
    """was cancelled"""

    @property
    def terminal(self) -> bool:
        return self in TERMINAL

    @property
    def held(self) -> bool:
        """Whether a worker holds a lease on a job in this state."""
        return self in HELD


class TransitionEvent(StrEnum):
    """What can happen to a job. Below each: its cause and its meaning."""

    DUE = "due"
    """the stager: it became due"""
    CLAIM = "claim"
    """a worker: claimed it"""
    START = "start"
    """its worker: the handler has been running for a while"""
    FINALIZE = "finalize"
    """its worker: the remote work is done; its result is being stored"""
    COMPLETE = "complete"
    """its worker: the handler returned"""
    FAIL = "fail"
    """its worker, the expirer or the rescuer: failed for good, or no attempt is left"""
    RETRY = "retry"
    """its worker or the expirer: failed, or ran too long, and an attempt is left"""
    UNREACHABLE = "unreachable"
    """its worker: what it needs is unreachable; spends no attempt"""
    POSTPONE = "postpone"
    """its worker: its call broke off, which is counted separately; no attempt"""
    RELEASE = "release"
    """its worker: the worker is stopping; spends no attempt"""
    CRASH = "crash"
    """the rescuer: its worker died or went silent, for the first time"""
    CRASH_AGAIN = "crash_again"
    """the rescuer: its worker died or went silent, and not for the first time; due after a delay"""
    CANCEL = "cancel"
    """the caller: requested cancellation"""
    ACKNOWLEDGE_CANCEL = "acknowledge_cancel"
    """its worker: the handler stopped as requested"""
    EXPIRE = "expire"
    """the expirer: it did not start before its deadline"""


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


class Completed(msgspec.Struct, frozen=True, gc=False):  # the only outcome made by the thousand
    """The handler returned; ``result`` is its value as JSON."""

    result: bytes


@dataclass(frozen=True, slots=True)
class Failed:
    """Failed for good: a retry would not help."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Retryable:
    """Failed; retried while attempts remain, after ``after_seconds`` or the usual backoff."""

    code: str
    message: str
    after_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Unreachable:
    """The target was unreachable. Retried after a backoff, without spending an attempt."""

    message: str
    after_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Postponed:
    """Broke off in a way that is counted separately. Retried later, spending no attempt."""

    code: str
    message: str
    after_seconds: float


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The worker had to stop. The job is queued again at once, spending no attempt."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The handler stopped because cancellation was requested."""


@dataclass(frozen=True, slots=True)
class Parked:
    """The work continues at a remote, and this worker no longer holds the job."""


Outcome = (
    Completed | Failed | Retryable | Unreachable | Postponed | Interrupted | Cancelled | Parked
)
