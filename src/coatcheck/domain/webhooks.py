"""Webhooks: what is told to whom, when it is tried again, and how that is spelt."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from coatcheck.domain.ids import InvalidId, from_text, to_text

RETRY_SECONDS: Final = (5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400)
"""How long after each failed try the next one is made; the first is made at once."""
RETRY_JITTER: Final = 0.1
TRIES_MAX: Final = len(RETRY_SECONDS) + 1
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

_MESSAGE: Final = "msg_"


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


@dataclass(frozen=True, slots=True)
class Notice:
    """What is told: that something happened to a subject. ``facts`` are what its row may no longer
    say: ``state``, ``attempt``, ``error_code``, ``endpoint`` and ``flow`` of a job or task."""

    org: str
    id: UUID
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
    status: Status
    tries: int
    last_status_code: int | None
    last_error: str | None
    last_try_at: datetime | None
    next_try_at: datetime | None
    created_at: datetime
    ended_at: datetime | None


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


def retry_seconds(tries: int, random: float, asked_seconds: float | None = None) -> float | None:
    """The wait after so many failed tries; None if there is none left. ``random`` is in [0, 1).

    What the receiver asked for makes it longer, never shorter: one that always asks for a second
    would be out of tries within ten.
    """
    if tries >= TRIES_MAX:
        return None
    plain = RETRY_SECONDS[tries - 1] * (1.0 + RETRY_JITTER * random)
    return max(plain, min(asked_seconds or 0.0, PEACE_SECONDS_MAX))
