"""Converts what a handler returned or raised into the outcome of its job, for every executor."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from typing import Any, Final

from coatcheck.domain.errors import (
    BlobStoreUnavailable,
    FailJob,
    InvalidInput,
    JobCancelled,
    JobParked,
    JobPostponed,
    JobSignal,
    RetryLater,
    TargetUnreachable,
)
from coatcheck.domain.failures import CoreFailure
from coatcheck.domain.limits import ERROR_MESSAGE_CHARACTERS_MAX, RESULT_BYTES_MAX
from coatcheck.domain.states import (
    Cancelled,
    Completed,
    Failed,
    Outcome,
    Parked,
    Postponed,
    Retryable,
    Unreachable,
)
from coatcheck.encoding import encode
from coatcheck.job import RETRY_AFTER_SECONDS_MAX, Job, storable_text

_ERROR_CODE_CHARACTERS_MAX: Final = 100
_CAUSES_SHOWN_MAX: Final = 5

_logger = logging.getLogger(__name__)


def outcome_of_value(value: Any) -> Outcome:
    """The outcome of a handler that returned ``value``."""
    try:
        result = encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        return Failed(
            CoreFailure.RESULT_NOT_JSON, _bounded(f"the result cannot be encoded as JSON: {error}")
        )
    if len(result) > RESULT_BYTES_MAX:
        return Failed(
            CoreFailure.RESULT_TOO_LARGE,
            f"the result has {len(result)} bytes; {RESULT_BYTES_MAX} are allowed."
            " Attach it as a file instead",
        )
    return Completed(result)


def outcome_of_error(error: BaseException) -> Outcome:
    """The outcome of a handler that raised ``error``."""
    match meant(error):
        case InvalidInput() as invalid:
            return Failed(CoreFailure.INVALID_INPUT, _bounded(str(invalid)))
        case FailJob() as signal:
            return Failed(_code(signal.code), _bounded(str(signal)))
        case RetryLater() as signal:
            return Retryable(_code(signal.code), _bounded(str(signal)), _delay(signal.after))
        case TargetUnreachable() as signal:
            return Unreachable(_bounded(str(signal)), _delay(signal.after))
        case JobPostponed() as signal:
            return Postponed(_code(signal.code), _bounded(str(signal)), _delay(signal.after) or 0.0)
        case BlobStoreUnavailable() as away:
            return Unreachable(_bounded(f"the job's attachment could not be stored: {away}"))
        case JobCancelled():
            return Cancelled()
        case JobParked():
            return Parked()
        case other:
            return Retryable(
                CoreFailure.HANDLER_ERROR, _bounded(f"{type(other).__name__}: {other}")
            )


def out_of_memory(memory_mb: int) -> Retryable:
    """The outcome of a handler whose process reached its memory limit."""
    return Retryable(
        CoreFailure.MEMORY_LIMIT, f"the handler needed more than its {memory_mb} MiB of memory"
    )


def meant(error: BaseException) -> BaseException:
    """The relevant error: a task group wraps its tasks' errors, possibly with a job signal."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    leaves = list(_leaves(error))
    signals = [leaf for leaf in leaves if isinstance(leaf, JobSignal)]
    if signals:
        return signals[0]
    return leaves[0] if len(leaves) == 1 else error


def log_error(job: Job, error: BaseException) -> None:
    """Log the traceback, unless the error is a deliberate signal about the job."""
    if not isinstance(meant(error), (JobSignal, InvalidInput, BlobStoreUnavailable)):
        log_trace(job, trace_of(error))


def log_trace(job: Job, trace: str) -> None:
    _logger.warning(
        "the handler of %s failed at attempt %d of job %s\n%s",
        job.endpoint,
        job.attempt,
        job.id,
        trace,
    )


def trace_of(error: BaseException) -> str:
    """The frames and types of an error and its causes, without their texts.

    A text such as ``KeyError: 'Smith'`` may quote the payload, and a log outlives the job.
    """
    parts: list[str] = []
    current: BaseException | None = error
    while current is not None and len(parts) < _CAUSES_SHOWN_MAX:
        frames = "".join(traceback.format_tb(current.__traceback__))
        parts.append(f"{frames}{type(current).__module__}.{type(current).__qualname__}")
        if isinstance(current, BaseExceptionGroup):
            current = current.exceptions[0]
        else:
            current = current.__cause__ or (
                None if current.__suppress_context__ else current.__context__
            )
    return "\nfrom\n".join(parts)


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


def _bounded(text: str) -> str:
    # Cut first: the text may be a whole document.
    return storable_text(text[:ERROR_MESSAGE_CHARACTERS_MAX])


def _code(code: str) -> str:
    return storable_text(code[:_ERROR_CODE_CHARACTERS_MAX])


def _delay(seconds: float | None) -> float | None:
    """The delay within its limits; None (the usual backoff) for NaN and negative values."""
    if seconds is None or not seconds >= 0.0:
        return None
    return min(float(seconds), RETRY_AFTER_SECONDS_MAX)
