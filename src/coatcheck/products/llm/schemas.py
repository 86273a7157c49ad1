"""What the llm surface's answers look like: the words of its contract, from the engine's."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import msgspec

from coatcheck.domain.states import State


class LlmState(StrEnum):
    """Where a job stands. ``loading``: its model is being loaded by the target."""

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
    word: [state for state, called in _STATES.items() if called is word] for word in LlmState
} | {LlmState.LOADING: [State.DISPATCHING]}
"""The states in which a job may be that is shown so."""


def llm_state(state: State, *, loading: bool) -> LlmState:
    """What a state is called here; ``loading`` is what the job's assignment says."""
    if state is State.DISPATCHING and loading:
        return LlmState.LOADING
    return _STATES[state]


class Error(msgspec.Struct, frozen=True):
    """Why a job failed. ``code`` is stable; ``message`` may be the target's own."""

    code: str
    message: str


class ChatArtifactItem(msgspec.Struct, frozen=True):
    """A file that the job made: an image of its answer, or an answer that is too long for a row."""

    name: str
    media_type: str
    bytes: int
    sha256: str
    url: str


class ChatWaiting(msgspec.Struct, frozen=True):
    """Why a job waits: ``target_unreachable``, ``backoff``, ``queue`` or ``no_worker``; since when,
    and when it is tried next, if that is known."""

    reason: str
    detail: str
    since: datetime
    next_try_at: datetime | None


class ChatUrls(msgspec.Struct, frozen=True):
    """Where the job is read, followed and cancelled."""

    poll: str
    events: str
    cancel: str


class ChatTicket(msgspec.Struct, frozen=True):
    """A job that is safe."""

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
    """A job. ``result`` is what the target would have answered to a request that does not stream;
    null until the job is done. In an event, where a long one has no room, it is null as well: it is
    found in ``artifacts`` then, and where the job is read."""

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
    # The last one, because a long one is streamed after all others.
    result: Any = None


class ChatJobPage(msgspec.Struct, frozen=True):
    """Jobs, newest first. ``next`` is the cursor of the page after this one; null on the last."""

    items: list[ChatJobItem]
    next: str | None
