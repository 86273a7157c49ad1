"""The HTTP bodies of the llm product, and its names for the engine's states."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import msgspec

from coatcheck.domain.job import JobFailure
from coatcheck.domain.states import State


class LlmState(StrEnum):
    """The state of a job. ``loading``: the target is loading the model."""

    QUEUED = "queued"
    LOADING = "loading"
    WORKING = "working"
    DONE = "done"
    FAILED = "failed"


_STATES: Final = {
    State.STAGED: LlmState.QUEUED,
    State.QUEUED: LlmState.QUEUED,
    State.RETRYING: LlmState.QUEUED,
    State.DISPATCHING: LlmState.QUEUED,
    State.PROCESSING: LlmState.WORKING,
    State.FINALIZING: LlmState.WORKING,
    State.CANCEL_REQUESTED: LlmState.WORKING,
    State.COMPLETED: LlmState.DONE,
    State.FAILED: LlmState.FAILED,
    State.CANCELLED: LlmState.FAILED,
}

ENGINE_STATES: Final[dict[LlmState, list[State]]] = {
    name: [state for state, shown in _STATES.items() if shown is name] for name in LlmState
} | {LlmState.LOADING: [State.DISPATCHING]}
"""The engine's states that each state may stand for."""


def llm_state(state: State, *, loading: bool) -> LlmState:
    """The name of an engine's state here. ``loading`` is from the job's assignment."""
    if state is State.DISPATCHING and loading:
        return LlmState.LOADING
    return _STATES[state]


class Error(JobFailure, frozen=True):
    """Why a job failed. ``code`` and ``cause`` are stable; ``message`` may quote the target."""


class ChatArtifactItem(msgspec.Struct, frozen=True):
    """A file of a job: an image of its answer, or an answer too large for a row."""

    name: str
    media_type: str
    bytes: int
    sha256: str
    url: str


class ChatWaiting(msgspec.Struct, frozen=True):
    """Why a job waits: ``target_unreachable``, ``backoff``, ``queue`` or ``no_worker``; since when;
    and when it is tried next, if known."""

    reason: str
    detail: str
    since: datetime
    next_try_at: datetime | None


class ChatUrls(msgspec.Struct, frozen=True):
    """The URLs to read, follow and cancel the job."""

    poll: str
    events: str
    cancel: str


class ChatTicket(msgspec.Struct, frozen=True):
    """A job that is stored."""

    job_id: str
    state: LlmState
    terminal: bool
    urls: ChatUrls


class ChatJobItem(msgspec.Struct, frozen=True):
    """A job in a list."""

    job_id: str
    state: LlmState
    model: str
    attempt: int
    error: Error | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    expires_at: datetime | None
    terminal: bool
    urls: ChatUrls


class ChatJob(msgspec.Struct, frozen=True):
    """A job. ``result`` is the target's answer to a request that does not stream; null until the
    job is done. In an event, a long result is null as well: ``artifacts`` has it, and a read of the
    job."""

    job_id: str
    state: LlmState
    model: str
    attempt: int
    error: Error | None
    artifacts: list[ChatArtifactItem]
    waiting: ChatWaiting | None
    target: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    expires_at: datetime | None
    terminal: bool
    urls: ChatUrls
    # The last field, because a long result is streamed after all others.
    result: Any = None


class ChatJobPage(msgspec.Struct, frozen=True):
    """Jobs, newest first. ``next`` is the cursor of the next page; null on the last page."""

    items: list[ChatJobItem]
    next: str | None
