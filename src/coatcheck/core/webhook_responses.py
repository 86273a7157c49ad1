"""What a receiver's answer means for what was sent to it: one set of rules, whether we posted it or
whoever fetched it did."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from uuid import UUID

from coatcheck.core.queries.webhooks import Mark
from coatcheck.domain.webhooks import PEACE_SECONDS_MAX, Status, retry_seconds

WITH_PEACE: Final = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})
"""The statuses whose Retry-After is obeyed."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a receiver answered, or why there is no answer. ``error`` is None if all is well.

    ``error`` has no part of the URL, nor of what was answered.
    """

    status: int | None
    error: str | None
    asked_seconds: float | None = None

    @property
    def is_gone(self) -> bool:
        return self.status == HTTPStatus.GONE


def answered(status: int, asked_seconds: float | None = None) -> Answer:
    """What a status means. ``asked_seconds`` is what came with it as Retry-After."""
    if 200 <= status < 300:
        return Answer(status, None)
    if 300 <= status < 400:
        return Answer(status, f"answered {status}; redirects are not followed")
    asked = None
    if status in WITH_PEACE and asked_seconds is not None:
        asked = min(max(asked_seconds, 0.0), PEACE_SECONDS_MAX)
    return Answer(status, f"answered {status}", asked)


def judged(
    org: str,
    delivery: UUID,
    lease: UUID,
    *,
    tries: int,
    answer: Answer,
    luck: float,
    fetched: bool = False,
) -> Mark:
    """What becomes of a delivery that had been tried ``tries`` times before. ``luck`` is in
    [0, 1). One that was ``fetched`` has a schedule of its own."""
    status, delay = Status.PENDING, None
    if answer.error is None:
        status = Status.DELIVERED
    elif answer.is_gone:
        status = Status.DISABLED
    else:
        delay = retry_seconds(tries + 1, luck, answer.asked_seconds, fetched=fetched)
        if delay is None:
            status = Status.EXHAUSTED
    return Mark(
        org, delivery, lease, status, answer.status, answer.error, delay, answer.asked_seconds
    )
