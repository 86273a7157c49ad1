"""A job as its parts know it: new, claimed by a worker, or seen by a reader."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from coatcheck.domain.ids import to_text
from coatcheck.domain.lanes import Lane
from coatcheck.domain.states import State


class JobKind(NamedTuple):
    """What a run of new jobs has in common."""

    org: str
    lane: str
    endpoint: str
    flow: str
    failures_max: int
    owner: str = ""


PlainJob = tuple[JobKind, bytes, str | None]
"""A job about to be created with nothing of its own but its payload and the id of the request it
came with: no key, no option. A bare tuple, because of how many there are."""


@dataclass(slots=True)
class NewJob:
    """A job about to be created: the columns most jobs have, and as JSON those that few have."""

    org: str
    uuid: UUID
    lane: str
    endpoint: str
    flow: str
    failures_max: int
    payload: bytes
    idempotency_key: str | None = None
    fingerprint: bytes | None = None
    request_id: str | None = None
    options: str | None = None
    owner: str = ""
    is_told_of: bool = False
    """Whether somebody is told of it by webhook; ``options`` then say who."""

    @property
    def is_plain(self) -> bool:
        """Whether nothing can stand in its way: no key, no option."""
        return self.idempotency_key is None and self.options is None


@dataclass(slots=True, frozen=True)
class Existing:
    """The job that an idempotency key already names."""

    uuid: UUID
    state: State
    fingerprint: bytes | None


@dataclass(slots=True)
class ClaimedJob:
    """A job that this worker holds, under ``lease``, until it ends or the lease does."""

    org: str
    uuid: UUID
    lane: Lane
    endpoint: str
    flow: str
    payload: bytes
    attempt: int
    failures: int
    unreachables: int
    timeout_seconds: float | None
    request_id: str | None
    lease: int
    traceparent: str | None = None
    """The trace that its submission belongs to, if that was traced."""
    waited_seconds: float = 0.0
    """How long it had been due when it was claimed."""


@dataclass(slots=True, frozen=True)
class JobView:
    """A job as a reader sees it. ``result`` is JSON, there once the job has completed; or None
    although ``result_bytes`` says how long it is, where a reader leaves out what is long.

    ``owner`` is empty if anyone of the organisation may read it. ``read_at`` is the database's time
    when it was read: ages are counted up to then.
    """

    org: str
    uuid: UUID
    lane: Lane
    endpoint: str
    flow: str
    state: State
    failures: int
    failures_max: int
    crashes: int
    interruptions: int
    unreachables: int
    created_at: datetime
    run_at: datetime
    dispatched_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    updated_at: datetime
    expires_at: datetime | None
    start_deadline: datetime | None
    read_at: datetime = field(compare=False)
    progress: float | None
    progress_note: str | None
    idempotency_key: str | None
    request_id: str | None
    owner: str
    error_code: str | None
    error_message: str | None
    execution_id: str | None
    """What a remote calls the work, if it is done elsewhere and was spawned."""
    result_bytes: int | None
    result: bytes | None

    @property
    def result_is_left_out(self) -> bool:
        return self.result is None and self.result_bytes is not None

    @property
    def id(self) -> str:
        return to_text(self.uuid)

    @property
    def terminal(self) -> bool:
        return self.state.terminal

    @property
    def attempts(self) -> int:
        """How many attempts were begun and counted: failures, crashes, and the one that completed
        or is under way. Interruptions and unreachable targets are not among them."""
        under_way = self.state.held or self.state is State.COMPLETED
        return self.failures + self.crashes + (1 if under_way else 0)


@dataclass(slots=True, frozen=True)
class Page:
    """A part of a list of jobs, newest first, without results, and how long the whole list is.

    ``total`` stops at a bound; ``total_is_exact`` says whether it got there.
    """

    items: Sequence[JobView]
    total: int
    total_is_exact: bool


@dataclass(slots=True, frozen=True)
class JobEvent:
    """A log line, output chunk or alert. ``seq`` grows; a reader resumes after the last seen."""

    seq: int
    kind: str
    data: bytes
    at: datetime


@dataclass(slots=True, frozen=True)
class Artifact:
    """A file that a job made."""

    name: str
    blob_key: str
    media_type: str
    size: int
    sha256: bytes
    created_at: datetime


@dataclass(slots=True, frozen=True)
class ConcurrencyLimit:
    """How many jobs may be held at once; ``schema/core/0005_limits.sql`` has the scopes."""

    org: str
    scope: str
    name: str
    held_max: int
