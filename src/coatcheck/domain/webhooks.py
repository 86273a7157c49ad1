"""Webhooks: events, receivers, deliveries and the retry schedule."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

from coatcheck.domain.errors import InvalidSubmission
from coatcheck.domain.ids import InvalidId, from_text, to_text
from coatcheck.domain.states import TERMINAL, TRANSITIONS

RETRY_SECONDS: Final = (5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400)
"""The delay after each failed try; the first try is made at once."""
RETRY_JITTER: Final = 0.1
TRIES_MAX: Final = len(RETRY_SECONDS) + 1
PULLED_RETRY_SECONDS: Final = (1, 2, 5, 10, 20, 30)
"""The same for pulled messages, whose receiver is present and polls all the time. The last delay is
repeated."""
PULLED_TRIES_MAX: Final = 120
"""About an hour of failures."""
RETRY_AFTER_SECONDS_MAX: Final = 86_400.0
"""The longest delay that a receiver can request by Retry-After."""

POST_SECONDS_MAX: Final = 15.0
ANSWER_BYTES_MAX: Final = 64 * 1024
RESULT_BYTES_MAX: Final = 256 * 1024
"""The body omits a longer result and has its URL instead."""

PREVIOUS_SECRET_SECONDS: Final = 86_400
"""How long the previous secret stays valid after a rotation."""
LOG_SECONDS: Final = 7 * 86_400
"""How long the outcome of a delivery is kept."""
UNUSED_TARGET_SECONDS: Final = 8 * 86_400

ENDPOINTS_MAX: Final = 50
"""Per organisation."""
DESCRIPTION_CHARACTERS_MAX: Final = 500
PULL_SECONDS_MAX: Final = 600
"""A pull endpoint that was not polled for this long is removed."""

JOB_EVENTS: Final = tuple(f"job.{state}" for state in sorted(set(TRANSITIONS.values())))
"""Every state that a job can move to. Its creation is not an event: the caller knows."""
BATCH_EVENTS: Final = ("batch.completed", "batch.cancelled")
TASK_EVENTS: Final = ("task.failed",)
ALERT_EVENT: Final = "job.alert"
"""A job failed with no attempt left. Sent besides ``job.failed``, to receivers that name it."""
USAGE_REPORT_EVENT: Final = "usage.report"
"""A usage report was made. Sent only to receivers that name it."""
EVENTS: Final = frozenset(
    (*JOB_EVENTS, *BATCH_EVENTS, *TASK_EVENTS, ALERT_EVENT, USAGE_REPORT_EVENT)
)
"""All events that an endpoint can subscribe to."""
TEST_EVENT: Final = "webhook.test"
"""The event that tests an endpoint."""
_ENDS: Final = tuple(f"job.{state}" for state in sorted(TERMINAL))
MANY_EVENTS: Final = MappingProxyType(
    {"*": (*_ENDS, *BATCH_EVENTS), "job.*": JOB_EVENTS, "batch.*": BATCH_EVENTS}
)
"""Names for several events."""

_MESSAGE: Final = "msg_"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class DeliveryStatus(StrEnum):
    """The status of a delivery."""

    PENDING = "pending"
    DELIVERED = "delivered"
    EXHAUSTED = "exhausted"
    """Every try failed."""
    DISABLED = "disabled"
    """The receiver answered 410: it wants no more webhooks."""


class SubjectKind(StrEnum):
    """The kind of subject of a delivery."""

    JOB = "job"
    TASK = "task"
    BATCH = "batch"
    TEST = "test"
    """An endpoint that somebody tests."""
    USAGE = "usage"
    """A usage report."""


class WebhookScope(IntEnum):
    """Which state changes of a job a target receives: the values of ``job_webhooks.tells``."""

    THE_END = 1
    EVERY_STATE = 2
    PHASES = 4
    """Only the changes that the job's caller sees."""


INTERNAL: Final = 0
"""The value of ``jobs.webhook`` for a job that a product runs for itself: no endpoint receives its
events, because nobody submitted it."""


@dataclass(frozen=True, slots=True)
class DeliveryEvent:
    """A webhook event for one ``target``: something happened to a subject.

    ``facts`` are what the subject's row may no longer say: ``state``, ``previous`` (the state
    before), ``attempt``, ``error_code``, ``endpoint`` and ``flow`` (the queue key) of a job or
    task. ``as`` says why the target receives the event: for the job's ``end``, for a ``state`` of
    it, for a ``phase``, or because it is an ``endpoint`` of the organisation.
    """

    org: str
    id: UUID
    target: UUID
    kind: SubjectKind
    subject: UUID
    run: UUID | None
    event: str
    facts: Mapping[str, Any]
    at: datetime


@dataclass(frozen=True, slots=True)
class DeliveryView:
    """A delivery in the delivery log."""

    org: str
    id: UUID
    kind: SubjectKind
    subject: UUID
    run: UUID | None
    event: str
    url: str | None
    endpoint: UUID | None
    """The endpoint that it is or was for; None if a job or batch named the URL."""
    paused: bool
    """Whether it waits because its endpoint is paused."""
    status: DeliveryStatus
    tries: int
    last_status_code: int | None
    last_error: str | None
    last_try_at: datetime | None
    next_try_at: datetime | None
    created_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class EndpointView:
    """A webhook endpoint of an organisation.

    ``events`` are the events it receives. ``url`` is empty if it is ``pulled``: nothing is posted
    to it, and its receiver fetches the messages. ``disabled_at``: it answered 410, and gets nothing
    until it is resumed. ``failures`` counts tries since the last 2xx.
    """

    org: str
    uuid: UUID
    url: str
    events: tuple[str, ...]
    description: str
    pulled: bool
    generation: int
    failures: int
    created_at: datetime
    rotated_at: datetime | None
    paused_at: datetime | None
    disabled_at: datetime | None
    pulled_at: datetime | None

    @property
    def id(self) -> str:
        return to_text(self.uuid)


def expand_events(names: Iterable[str]) -> tuple[str, ...]:
    """The events that names stand for, sorted, without duplicates. Raises InvalidSubmission.

    ``*`` means every end of jobs and of batches. ``job.*`` means every state of a job.
    """
    meant: set[str] = set()
    for name in names:
        if name not in EVENTS and name not in MANY_EVENTS:
            known = ", ".join([*MANY_EVENTS, *sorted(EVENTS)])
            raise InvalidSubmission(f"events: unknown event {name[:50]!r}; use one of {known}")
        meant.update(MANY_EVENTS.get(name, (name,)))
    if not meant:
        raise InvalidSubmission("events: must have at least one")
    return tuple(sorted(meant))


def first_delivery_at(moment: datetime) -> UUID:
    """An id before that of every delivery created at this moment or later."""
    milliseconds = max(0, (moment - _EPOCH) // timedelta(milliseconds=1))
    return UUID(int=milliseconds << 80)


def target_id(org: str, url: str) -> UUID:
    """The id of an organisation's URL, which is deterministic."""
    return UUID(bytes=hashlib.sha256(f"{org}\0{url}".encode()).digest()[:16])


def message_id(delivery: UUID) -> str:
    """The ``webhook-id``, which is the same at every try."""
    return _MESSAGE + to_text(delivery)


def delivery_of(message: str) -> UUID:
    """The delivery of a ``webhook-id``. Raises InvalidId."""
    if not message.startswith(_MESSAGE):
        raise InvalidId(f"a message id must begin with {_MESSAGE}")
    return from_text(message.removeprefix(_MESSAGE))


def retry_seconds(
    tries: int, random: float, asked_seconds: float | None = None, *, pulled: bool = False
) -> float | None:
    """The delay after so many failed tries; None if none is left. ``random`` is in [0, 1).

    A receiver's request makes it longer, never shorter: one that always asks for a second would be
    out of tries within ten seconds. ``pulled``: the message is pulled.
    """
    if tries >= (PULLED_TRIES_MAX if pulled else TRIES_MAX):
        return None
    schedule = PULLED_RETRY_SECONDS if pulled else RETRY_SECONDS
    plain = schedule[min(tries, len(schedule)) - 1] * (1.0 + RETRY_JITTER * random)
    return max(plain, min(asked_seconds or 0.0, RETRY_AFTER_SECONDS_MAX))
