"""What becomes of a job, for each way in which its handler can end."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from coatcheck.domain.errors import (
    FailJob,
    FieldIssue,
    InvalidInput,
    JobCancelled,
    RetryLater,
    TargetUnreachable,
)
from coatcheck.domain.limits import ERROR_MESSAGE_CHARACTERS_MAX, RESULT_BYTES_MAX
from coatcheck.domain.states import (
    Cancelled,
    Completed,
    Failed,
    Outcome,
    Retryable,
    Unreachable,
)
from coatcheck.service import Service
from coatcheck.worker.executors.outcomes import (
    log_error,
    outcome_of_error,
    outcome_of_value,
    trace_of,
)
from tests.worker.attempts import Recorder, new_job

# Put together here, so that no line of source that a trace shows contains it.
CANARY = "-".join(("canary", "7f3"))


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (
            InvalidInput([FieldIssue("a", "missing"), FieldIssue("b", "unexpected")]),
            Failed("invalid_input", "a: missing; b: unexpected"),
        ),
        (FailJob("no", code="refused"), Failed("refused", "no")),
        (RetryLater("busy", after=5.0, code="busy"), Retryable("busy", "busy", 5.0)),
        (RetryLater("busy"), Retryable("retry_later", "busy", None)),
        (TargetUnreachable("away", after=3.0), Unreachable("away", 3.0)),
        (TargetUnreachable("away"), Unreachable("away", None)),
        (JobCancelled(), Cancelled()),
        (KeyError("k"), Retryable("handler_error", "KeyError: 'k'")),
        (SystemExit(3), Retryable("handler_error", "SystemExit: 3")),
        (asyncio.CancelledError(), Retryable("handler_error", "CancelledError: ")),
        (
            ExceptionGroup("g", [ValueError("a"), ExceptionGroup("h", [FailJob("no")])]),
            Failed("job_failed", "no"),
        ),
        (ExceptionGroup("g", [ValueError("a")]), Retryable("handler_error", "ValueError: a")),
        (
            ExceptionGroup("g", [ValueError("a"), KeyError("b")]),
            Retryable("handler_error", "ExceptionGroup: g (2 sub-exceptions)"),
        ),
    ],
)
def test_each_error_has_its_outcome(error: BaseException, outcome: Outcome) -> None:
    assert outcome_of_error(error) == outcome


def test_a_message_is_bounded_and_can_be_stored() -> None:
    outcome = outcome_of_error(ValueError("a\x00\ud800" + "x" * 10_000))
    assert isinstance(outcome, Retryable)
    assert len(outcome.message) == ERROR_MESSAGE_CHARACTERS_MAX
    assert outcome.message.startswith("ValueError: a\ufffd?xxx")


@pytest.mark.parametrize(
    ("asked", "given"),
    [(-1.0, None), (float("nan"), None), (float("inf"), 30 * 86_400.0), (0.0, 0.0)],
)
def test_a_delay_stays_within_what_the_database_can_hold(asked: float, given: float | None) -> None:
    assert outcome_of_error(RetryLater("busy", after=asked)) == Retryable(
        "retry_later", "busy", given
    )


def test_a_code_is_bounded() -> None:
    outcome = outcome_of_error(FailJob("no", code="x" * 1000))
    assert outcome == Failed("x" * 100, "no")


def test_a_value_completes_the_job() -> None:
    assert outcome_of_value({"a": 1}) == Completed(b'{"a":1}')


@pytest.mark.parametrize("value", [object(), "\ud800", {(1, 2): 3}])
def test_a_value_that_is_not_json_fails_the_job_for_good(value: Any) -> None:
    outcome = outcome_of_value(value)
    assert isinstance(outcome, Failed)
    assert outcome.code == "result_not_json"


def test_a_result_over_the_bound_fails_the_job_for_good() -> None:
    quotes = 2
    largest = "x" * (RESULT_BYTES_MAX - quotes)
    assert isinstance(outcome_of_value(largest), Completed)
    outcome = outcome_of_value(largest + "x")
    assert isinstance(outcome, Failed)
    assert outcome.code == "result_too_large"


def _breaks(secret: str) -> None:
    try:
        raise KeyError(secret)
    except KeyError as error:
        raise ValueError(f"cannot use {secret}") from error


def _error() -> BaseException:
    with pytest.raises(ValueError, match="cannot use") as caught:
        _breaks(CANARY)
    return caught.value


def test_a_trace_shows_frames_and_types_and_no_texts() -> None:
    trace = trace_of(_error())
    assert "in _breaks" in trace
    assert "builtins.ValueError" in trace
    assert "builtins.KeyError" in trace
    assert CANARY not in trace


def test_what_broke_is_logged_without_its_text_and_what_was_meant_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    service = Service("test")
    service.post("/")(_breaks)
    job = new_job(service.endpoints["post__"], Recorder())
    with caplog.at_level(logging.DEBUG):
        log_error(job, FailJob(CANARY))
        log_error(job, InvalidInput([FieldIssue("a", "missing")]))
        assert not caplog.records
        log_error(job, _error())
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert job.id in record.getMessage()
    assert "test.post__" in record.getMessage()
    assert "in _breaks" in record.getMessage()
    assert CANARY not in caplog.text
