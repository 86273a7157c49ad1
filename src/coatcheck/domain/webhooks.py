"""Webhooks: what is told to whom, when it is tried again, and how that is spelt."""

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
"""How long after each failed try the next one is made; the first is made at once."""
RETRY_JITTER: Final = 0.1
TRIES_MAX: Final = len(RETRY_SECONDS) + 1
FETCHED_RETRY_SECONDS: Final = (1, 2, 5, 10, 20, 30)
"""The same for messages that are fetched: whoever fetches is there, and asks all the time. The last
wait is repeated."""
FETCHED_TRIES_MAX: Final = 120
"""About an hour of failures."""
PEACE_SECONDS_MAX: Final = 86_400.0
"""A receiver that asks for more by Retry-After is tried again after this long."""

POST_SECONDS_MAX: Final = 15.0
ANSWER_BYTES_MAX: Final = 64 * 1024
RESULT_BYTES_MAX: Final = 256 * 1024
"""A longer result is not in the body: it says where it is."""

PREVIOUS_SECRET_SECONDS: Final = 86_400
"""For how long after a rotation the secret before signs along."""
LOG_SECONDS: Final = 7 * 86_400
"""For how long what became of a delivery is kept."""
UNUSED_TARGET_SECONDS: Final = 8 * 86_400

ENDPOINTS_MAX: Final = 50
"""Endpoints of an organisation."""
DESCRIPTION_CHARACTERS_MAX: Final = 500
PULL_SECONDS_MAX: Final = 600
"""An endpoint that is fetched from, and was not for this long, is removed."""

JOB_EVENTS: Final = tuple(f"job.{state}" for state in sorted(set(TRANSITIONS.values())))
"""Every state that a job can be moved to. That it was created is no event: its caller knows."""
BATCH_EVENTS: Final = ("batch.completed", "batch.cancelled")
TASK_EVENTS: Final = ("task.failed",)
ALERT_EVENT: Final = "job.alert"
"""A job has failed with no attempt left. Told besides ``job.failed``, and only to who names it."""
USAGE_REPORT_EVENT: Final = "usage.report"
"""A report of the organisation's usage was made. Told only to who names it."""
EVENTS: Final = frozenset(
    (*JOB_EVENTS, *BATCH_EVENTS, *TASK_EVENTS, ALERT_EVENT, USAGE_REPORT_EVENT)
)
"""What an endpoint can be told of."""
TEST_EVENT: Final = "webhook.test"
"""What an endpoint is told when somebody tries it."""
_ENDS: Final = tuple(f"job.{state}" for state in sorted(TERMINAL))
MANY_EVENTS: Final = MappingProxyType(
    {"*": (*_ENDS, *BATCH_EVENTS), "job.*": JOB_EVENTS, "batch.*": BATCH_EVENTS}
)
"""Words that stand for several."""

_MESSAGE: Final = "msg_"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Status(StrEnum):
    """What became of a delivery."""

    PENDING = "pending"
    DELIVERED = "delivered"
    EXHAUSTED = "exhausted"
    """Every try failed."""
    DISABLED = "disabled"
    """The receiver answered 410: it wants nothing any more."""


class Tells(StrEnum):
    """What a delivery tells of."""

    JOB = "job"
    TASK = "task"
    BATCH = "batch"
    TEST = "test"
    """Of an endpoint, because somebody wants to see whether it works."""
    USAGE = "usage"
    """Of a report of usage."""


class Told(IntEnum):
    """Which of a job's moves a target is sent, as ``job_webhooks.tells`` spells it."""

    THE_END = 1
    EVERY_STATE = 2
    PHASES = 4
    """The moves that change what the job's caller is shown, and no others."""


INTERNAL: Final = 0
"""What ``jobs.webhook`` says of a job that a product runs for itself: endpoints are not sent its
moves, because nobody submitted it."""


@dataclass(frozen=True, slots=True)
class Notice:
    """What is told, and to which ``target``: that something happened to a subject.

    ``facts`` are what its row may no longer say: ``state``, ``previous`` (the state before),
    ``attempt``, ``error_code``, ``endpoint`` and ``flow`` of a job or task. And ``as``: whether
    this is told as the job's ``end``, as one ``state`` of it, as a ``phase``, or to an ``endpoint``
    of the organisation.
    """

    org: str
    id: UUID
    target: UUID
    kind: Tells
    subject: UUID
    run: UUID | None
    event: str
    facts: Mapping[str, Any]
    at: datetime


@dataclass(frozen=True, slots=True)
class DeliveryView:
    """A delivery as a reader of the log sees it."""

    org: str
    id: UUID
    kind: Tells
    subject: UUID
    run: UUID | None
    event: str
    url: str | None
    endpoint: UUID | None
    """The endpoint that it is for, or was while there was one; None if a job or batch named it."""
    paused: bool
    """Whether it waits because its endpoint is paused."""
    status: Status
    tries: int
    last_status_code: int | None
    last_error: str | None
    last_try_at: datetime | None
    next_try_at: datetime | None
    created_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class EndpointView:
    """An endpoint that an organisation has registered.

    ``events`` are the names of what it is told of. ``url`` is empty for one that is ``pulled``:
    nothing is posted to it, its messages are fetched. ``disabled_at``: it answered 410, and is told
    nothing until it is resumed. ``failures`` counts tries since the last one that was answered 2xx.
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
    """The events that are meant, each once, in order. Raises InvalidSubmission for an unknown one.

    ``*`` is every end: of jobs, and of batches. ``job.*`` is every state of a job.
    """
    meant: set[str] = set()
    for name in names:
        if name not in EVENTS and name not in MANY_EVENTS:
            known = ", ".join([*MANY_EVENTS, *sorted(EVENTS)])
            raise InvalidSubmission(f"events: there is no {name[:50]!r}; there are {known}")
        meant.update(MANY_EVENTS.get(name, (name,)))
    if not meant:
        raise InvalidSubmission("events: must name at least one")
    return tuple(sorted(meant))


def first_delivery_at(moment: datetime) -> UUID:
    """What comes before the id of every delivery that was noted at this moment or later."""
    milliseconds = max(0, (moment - _EPOCH) // timedelta(milliseconds=1))
    return UUID(int=milliseconds << 80)


def target_id(org: str, url: str) -> UUID:
    """The id of an organisation's URL: the same whoever computes it."""
    return UUID(bytes=hashlib.sha256(f"{org}\0{url}".encode()).digest()[:16])


def message_id(delivery: UUID) -> str:
    """What ``webhook-id`` says, at every try for ever."""
    return _MESSAGE + to_text(delivery)


def delivery_of(message: str) -> UUID:
    """The delivery that a ``webhook-id`` names. Raises InvalidId."""
    if not message.startswith(_MESSAGE):
        raise InvalidId(f"a message's id begins with {_MESSAGE}")
    return from_text(message.removeprefix(_MESSAGE))


def retry_seconds(
    tries: int, random: float, asked_seconds: float | None = None, *, fetched: bool = False
) -> float | None:
    """The wait after so many failed tries; None if there is none left. ``random`` is in [0, 1).

    What the receiver asked for makes it longer, never shorter: one that always asks for a second
    would be out of tries within ten. ``fetched``: the message is taken by whoever forwards it.
    """
    if tries >= (FETCHED_TRIES_MAX if fetched else TRIES_MAX):
        return None
    schedule = FETCHED_RETRY_SECONDS if fetched else RETRY_SECONDS
    plain = schedule[min(tries, len(schedule)) - 1] * (1.0 + RETRY_JITTER * random)
    return max(plain, min(asked_seconds or 0.0, PEACE_SECONDS_MAX))
