"""What becomes of a job whose target did not simply answer.

The texts go into the job's row, for its caller. They may quote the target: never log them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final

import httpx2
import msgspec

from coatcheck.domain.errors import (
    FailJob,
    JobPostponed,
    JobSignal,
    RetryLater,
    TargetUnreachable,
)
from coatcheck.domain.limits import LLM_DROPS_MAX
from coatcheck.egress.urls import asked_seconds
from coatcheck.products.llm.model import CONNECTION_LOST

RETRY_AFTER_SECONDS_MAX: Final = 3_600.0
"""A target that asks for more is asked again after this long."""
_SAID_CHARACTERS_MAX: Final = 500

_INVALID: Final = frozenset(
    {
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.UNPROCESSABLE_ENTITY,
    }
)
_REFUSED_US: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
_BUSY: Final = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})


class AnswerDropped(Exception):
    """The connection broke before the answer to a job was whole. What that means depends on whether
    the target is there."""


def no_answer(target: str, error: Exception) -> JobSignal:
    """The call broke before the target had answered anything."""
    match error:
        case httpx2.ConnectTimeout():
            return unreachable(target, "did not accept the connection in time")
        case httpx2.ConnectError():
            return unreachable(target, "cannot be connected to")
        case _:
            return RetryLater(
                f"The connection to the target {target} broke before its answer was whole.",
                code=CONNECTION_LOST,
            )


def unreachable(target: str, why: str) -> TargetUnreachable:
    return TargetUnreachable(f"The target {target} {why}.")


def dropped(target: str, drops: int | None, after: float) -> JobSignal:
    """It broke off, and answers others. Spends no attempt, but what breaks its target must not be
    asked for ever. ``drops``: how often by now, if that could be counted."""
    if drops is not None and drops >= LLM_DROPS_MAX:
        return FailJob(
            f"The target {target} broke the connection in the middle of the answer {drops} times, "
            "and was there again each time: what is asked may be what breaks it.",
            code=CONNECTION_LOST,
        )
    counted = "" if drops is None else f" ({drops} of {LLM_DROPS_MAX})"
    return JobPostponed(
        f"The connection to the target {target} broke in the middle of the answer{counted}, and "
        "the target is there.",
        code=CONNECTION_LOST,
        after=after,
    )


def silent(target: str, seconds: float) -> JobSignal:
    """It answers others, but said nothing of this job."""
    return RetryLater(
        f"The target {target} said nothing for {seconds:g} seconds.", code="target_silent"
    )


def invalid_answer(target: str) -> JobSignal:
    return RetryLater(
        f"The target {target} answered what is not of the Ollama API.",
        code="target_answer_invalid",
    )


def too_large(bytes_max: int) -> JobSignal:
    return FailJob(f"The answer has more than {bytes_max} bytes.", code="answer_too_large")


def said_error(target: str, said: str) -> JobSignal:
    """The target broke its stream off with an error of its own."""
    return RetryLater(_quoted(f"The target {target} broke off", said), code="target_error")


def refusal(
    target: str,
    status: int,
    headers: Mapping[str, str],
    said: str,
    now: datetime | None = None,
) -> JobSignal:
    """The target answered, but not 2xx. ``headers`` are looked up by lower-case names."""
    message = _quoted(f"The target {target} answered {status}", said)
    if status == HTTPStatus.NOT_FOUND:
        if said and "model" not in said.casefold():  # its router's words: the URL is wrong
            message += " (is its URL what comes before /api/chat?)"
            return FailJob(message, code="target_wrong_url")
        return FailJob(message, code="model_not_found")
    if status in _INVALID:
        return FailJob(message, code="invalid_request")
    if status in _REFUSED_US:
        return RetryLater(message, code="target_refused_us")
    if status in _BUSY:
        after = asked_seconds(headers, now or datetime.now(UTC), RETRY_AFTER_SECONDS_MAX)
        return RetryLater(message, code="target_busy", after=after)
    if 300 <= status < 400:
        return FailJob(
            f"The target {target} answered {status}. Redirects are not followed: set the URL that "
            "it leads to.",
            code="target_redirects",
        )
    if 400 <= status < 500:
        return FailJob(message, code="invalid_request")
    return RetryLater(message, code="target_error")


def has_moved(refused: JobSignal) -> JobSignal:
    """A target does not have the model any more, or not yet, but another one has."""
    return RetryLater(str(refused), code="model_not_found", after=0.0)


class _Problem(msgspec.Struct):
    error: str


def said_in(body: bytes) -> str:
    """What a target says of its refusal: the ``error`` of a JSON object, else plain text."""
    try:
        return msgspec.json.decode(body, type=_Problem).error
    except (msgspec.MsgspecError, RecursionError):
        return body.decode("utf-8", "ignore")


def _quoted(message: str, said: str) -> str:
    """One line, bounded, of characters that can be shown."""
    kept = " ".join(said[: 4 * _SAID_CHARACTERS_MAX].split())
    kept = "".join(each for each in kept if each.isprintable())[:_SAID_CHARACTERS_MAX].strip()
    return f"{message}: {kept}" if kept else f"{message}."
