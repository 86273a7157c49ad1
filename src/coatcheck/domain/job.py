"""The job types: new, claimed by a worker, or seen by a reader."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple, Self
from uuid import UUID

import msgspec

from coatcheck.domain.failures import CoreFailure
from coatcheck.domain.ids import to_text
from coatcheck.domain.lanes import Lane
from coatcheck.domain.states import State


class JobKind(NamedTuple):
    """What a group of new jobs has in common."""

    org: str
    lane: str
    endpoint: str
    queue_key: str
    failures_max: int
    owner: str = ""


PlainJob = tuple[JobKind, bytes, str | None]
"""A new job that only has a payload and a request id: no key, no option. A plain tuple, because a
bulk submit has very many."""


@dataclass(slots=True)
class NewJob:
    """A job about to be created: common columns as fields, rare ones as JSON."""

    org: str
    uuid: UUID
    lane: str
    endpoint: str
    queue_key: str
    failures_max: int
    payload: bytes
    idempotency_key: str | None = None
    fingerprint: bytes | None = None
    request_id: str | None = None
    options: str | None = None
    owner: str = ""
    has_webhooks: bool = False
    """Whether it has webhooks; ``options`` then name their receivers."""

    @property
    def is_plain(self) -> bool:
        """Whether nothing can prevent its creation: no key, no option."""
        return self.idempotency_key is None and self.options is None


@dataclass(slots=True, frozen=True)
class Existing:
    """The job that already has an idempotency key."""

    uuid: UUID
    state: State
    fingerprint: bytes | None


class ClaimedJob(msgspec.Struct, gc=False):  # made by the thousand
    """A job that this worker holds under ``lease`` until the job or the lease ends."""

    org: str
    uuid: UUID
    lane: Lane
    endpoint: str
    queue_key: str
    payload: bytes
    attempt: int
    failures: int
    unreachables: int
    timeout_seconds: float | None
    request_id: str | None
    lease: int
    traceparent: str | None = None
    """The trace of its submission, if it had one."""
    waited_seconds: float = 0.0
    """How long it had been due when it was claimed."""


@dataclass(slots=True, frozen=True)
class JobView:
    """A job as a reader sees it. ``result`` is JSON once the job has completed. It is None although
    ``result_bytes`` is set if a reader omits long results.

    ``owner`` is empty if anyone in the organisation may read it. ``read_at`` is the database's time
    of reading, for computing ages.
    """

    org: str
    uuid: UUID
    lane: Lane
    endpoint: str
    queue_key: str
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
    """The remote's id for the work, if a remote does it and it was started."""
    result_bytes: int | None
    result: bytes | None

    @property
    def flow(self) -> str:
        """The old name of ``queue_key``, removed with 0.1.0."""
        return self.queue_key

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
        """The attempts that count: failures, crashes, and the one that completed or is running.
        Interruptions and unreachable targets do not count."""
        under_way = self.state.held or self.state is State.COMPLETED
        return self.failures + self.crashes + (1 if under_way else 0)


_LAST_ATTEMPT: Final = re.compile(r"failed (?:once|\d+ times); last: ([^\s:]+): ")
"""Begins the message of what failed after its last retry; the statements that fail jobs write
it."""


class JobFailure(msgspec.Struct, frozen=True):
    """Why a job or a task failed. ``code`` is stable. ``cause`` is the code of the failure itself,
    also where ``code`` only says that no retry was left."""

    code: str
    message: str
    cause: str

    @classmethod
    def of(cls, code: str, message: str | None) -> Self:
        last = (
            _LAST_ATTEMPT.match(message or "")
            if code == CoreFailure.MAX_RETRIES_EXHAUSTED
            else None
        )
        return cls(code, message or "", code if last is None else last.group(1))


@dataclass(slots=True, frozen=True)
class JobPage:
    """A page of jobs, newest first, without results, and the length of the whole list.

    ``total`` stops at a limit; ``total_is_exact`` says whether it was below it.
    """

    items: Sequence[JobView]
    total: int
    total_is_exact: bool


@dataclass(slots=True, frozen=True)
class JobEvent:
    """A log line, output chunk or alert. ``seq`` grows; a reader resumes after the last one."""

    seq: int
    kind: str
    data: bytes
    at: datetime


@dataclass(slots=True, frozen=True)
class Artifact:
    """A file that a job produced."""

    name: str
    blob_key: str
    media_type: str
    size: int
    sha256: bytes
    created_at: datetime


@dataclass(slots=True, frozen=True)
class ConcurrencyLimit:
    """The maximum number of jobs held at once. ``core/schema/0005_limits.sql`` has the scopes.

    The scope ``queue_key`` is the same as ``flow``, its old name, and reads as that.
    """

    org: str
    scope: str
    name: str
    held_max: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "scope", stored_scope(self.scope))


def stored_scope(scope: str) -> str:
    """A limit's scope as the database spells it, which has the old name for ``queue_key``."""
    return "flow" if scope == "queue_key" else scope
