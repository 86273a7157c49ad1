"""The outcome of a job whose call to a target failed: fail, retry, or wait for the target.

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
from coatcheck.egress.urls import parse_retry_after
from coatcheck.products.llm.model import LLM_DROPS_MAX, LlmFailure

RETRY_AFTER_SECONDS_MAX: Final = 3_600.0
"""The longest Retry-After of a target that is followed."""
_QUOTE_CHARACTERS_MAX: Final = 500

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
    """The connection broke before the answer was whole. The outcome depends on whether the target
    still answers."""


def no_answer(target: str, error: Exception) -> JobSignal:
    """The call broke before the target sent an answer."""
    match error:
        case httpx2.ConnectTimeout():
            return unreachable(target, "did not accept the connection in time")
        case httpx2.ConnectError():
            return unreachable(target, "cannot be connected to")
        case _:
            return RetryLater(
                f"The connection to the target {target} broke before its answer was whole.",
                code=LlmFailure.CONNECTION_LOST,
            )


def unreachable(target: str, why: str) -> TargetUnreachable:
    return TargetUnreachable(f"The target {target} {why}.")


def dropped(target: str, drops: int | None, after: float) -> JobSignal:
    """The target broke off, but answers others. This spends no attempt, but is bounded: the request
    may be what breaks the target. ``drops``: how often so far, or None if not counted."""
    if drops is not None and drops >= LLM_DROPS_MAX:
        return FailJob(
            f"The target {target} broke the connection in the middle of the answer {drops} times, "
            "and answered again each time: the request may be what breaks it.",
            code=LlmFailure.CONNECTION_LOST,
        )
    counted = "" if drops is None else f" ({drops} of {LLM_DROPS_MAX})"
    return JobPostponed(
        f"The connection to the target {target} broke in the middle of the answer{counted}, but "
        "the target answers.",
        code=LlmFailure.CONNECTION_LOST,
        after=after,
    )


def silent(target: str, seconds: float) -> JobSignal:
    """The target answers others, but sent nothing for this job."""
    return RetryLater(
        f"The target {target} sent nothing for {seconds:g} seconds.", code=LlmFailure.TARGET_SILENT
    )


def invalid_answer(target: str) -> JobSignal:
    return RetryLater(
        f"The answer of the target {target} is not one of the Ollama API.",
        code=LlmFailure.TARGET_ANSWER_INVALID,
    )


def too_large(bytes_max: int) -> JobSignal:
    return FailJob(f"The answer has more than {bytes_max} bytes.", code=LlmFailure.ANSWER_TOO_LARGE)


def stream_error(target: str, text: str) -> JobSignal:
    """The target ended its stream with an error."""
    return RetryLater(
        _quoted(f"The target {target} ended its answer with an error", text),
        code=LlmFailure.TARGET_ERROR,
    )


def refusal(
    target: str,
    status: int,
    headers: Mapping[str, str],
    text: str,
    now: datetime | None = None,
) -> JobSignal:
    """The target's status is not 2xx. ``headers`` are looked up by lower-case names."""
    message = _quoted(f"The target {target} answered {status}", text)
    if status == HTTPStatus.NOT_FOUND:
        if text and "model" not in text.casefold():  # the 404 of a router: the URL is wrong
            message += " (is its URL what comes before /api/chat?)"
            return FailJob(message, code=LlmFailure.TARGET_WRONG_URL)
        return FailJob(message, code=LlmFailure.MODEL_NOT_FOUND)
    if status in _INVALID:
        return FailJob(message, code=LlmFailure.INVALID_REQUEST)
    if status in _REFUSED_US:
        return RetryLater(message, code=LlmFailure.TARGET_REFUSED_US)
    if status in _BUSY:
        after = parse_retry_after(headers, now or datetime.now(UTC), RETRY_AFTER_SECONDS_MAX)
        return RetryLater(message, code=LlmFailure.TARGET_BUSY, after=after)
    if 300 <= status < 400:
        return FailJob(
            f"The target {target} answered {status}. Redirects are not followed: set the URL that "
            "it leads to.",
            code=LlmFailure.TARGET_REDIRECTS,
        )
    if 400 <= status < 500:
        return FailJob(message, code=LlmFailure.INVALID_REQUEST)
    return RetryLater(message, code=LlmFailure.TARGET_ERROR)


def has_moved(refused: JobSignal) -> JobSignal:
    """The target does not have the model any more, or not yet, but another target has it."""
    return RetryLater(str(refused), code=LlmFailure.MODEL_NOT_FOUND, after=0.0)


class _Problem(msgspec.Struct):
    error: str


def error_text(body: bytes) -> str:
    """The error text of a target: the ``error`` of a JSON object, else the plain text."""
    try:
        return msgspec.json.decode(body, type=_Problem).error
    except (msgspec.MsgspecError, RecursionError):
        return body.decode("utf-8", "ignore")


def _quoted(message: str, text: str) -> str:
    """The message with a quote: one line, bounded, of printable characters."""
    kept = " ".join(text[: 4 * _QUOTE_CHARACTERS_MAX].split())
    kept = "".join(each for each in kept if each.isprintable())[:_QUOTE_CHARACTERS_MAX].strip()
    return f"{message}: {kept}" if kept else f"{message}."
