"""What a refusal says of itself, and what is kept of it."""

from __future__ import annotations

from datetime import UTC, datetime

import httpx2
import pytest

from coatcheck.domain.errors import FailJob, JobPostponed, RetryLater, TargetUnreachable
from coatcheck.products.llm import outcomes

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SAID = [
    (b'{"error": "model \'x\' not found"}', "model 'x' not found"),
    (b'{"error": {"code": 7}}', '{"error": {"code": 7}}'),
    (b"<h1>Bad  gateway</h1>\r\n\r\n", "<h1>Bad gateway</h1>"),
    (b"\x00\x1b[31mred\xff\xfe", "[31mred"),
    (b"x" * 100_000, "x" * 500),
    (b"[" * 100_000, "[" * 500),
]


@pytest.mark.parametrize(("body", "kept"), SAID)
def test_what_a_target_says_is_kept_in_one_line_that_can_be_shown(body: bytes, kept: str) -> None:
    signal = outcomes.refusal("box", 500, {}, outcomes.error_text(body), NOW)
    assert str(signal) == f"The target box answered 500: {kept}"


@pytest.mark.parametrize("body", [b"", b" \n", b'{"error": ""}', b"\x00\x01"])
def test_nothing_said_is_nothing_kept(body: bytes) -> None:
    signal = outcomes.refusal("box", 500, {}, outcomes.error_text(body), NOW)
    assert str(signal) == "The target box answered 500."


@pytest.mark.parametrize(
    ("asked", "after"),
    [
        ("7", 7.0),
        ("Thu, 01 Jan 2026 00:01:00 GMT", 60.0),
        ("999999", outcomes.RETRY_AFTER_SECONDS_MAX),
        ("soon", None),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_target_says_when_to_come_back(asked: str, after: float | None, status: int) -> None:
    signal = outcomes.refusal("box", status, {"retry-after": asked}, "", NOW)
    assert isinstance(signal, RetryLater)
    assert (signal.code, signal.after) == ("target_busy", after)


@pytest.mark.parametrize("status", [405, 410, 451])
def test_what_else_is_refused_for_good_is_the_callers_to_mend(status: int) -> None:
    signal = outcomes.refusal("box", status, {}, "", NOW)
    assert isinstance(signal, FailJob)
    assert signal.code == "invalid_request"


@pytest.mark.parametrize("said", ["", "model 'x' not found", "Model not found"])
def test_who_lacks_a_model_is_not_asked_again(said: str) -> None:
    signal = outcomes.refusal("box", 404, {}, said, NOW)
    assert isinstance(signal, FailJob)
    assert signal.code == "model_not_found"


@pytest.mark.parametrize("said", ["404 page not found", "<h1>Not Found</h1>"])
def test_a_path_that_a_target_does_not_know_is_no_missing_model(said: str) -> None:
    signal = outcomes.refusal("box", 404, {}, said, NOW)
    assert isinstance(signal, FailJob)
    assert signal.code == "target_wrong_url"
    assert str(signal).endswith(f"{said} (is its URL what comes before /api/chat?)")


@pytest.mark.parametrize("error", [httpx2.ConnectError("x"), httpx2.ConnectTimeout("x")])
def test_no_connection_spends_nothing(error: Exception) -> None:
    assert isinstance(outcomes.no_answer("box", error), TargetUnreachable)


@pytest.mark.parametrize(
    "error", [httpx2.ReadError("x"), httpx2.WriteError("x"), httpx2.RemoteProtocolError("x")]
)
def test_a_connection_that_broke_may_be_tried_again(error: Exception) -> None:
    signal = outcomes.no_answer("box", error)
    assert isinstance(signal, RetryLater)
    assert signal.code == "target_connection_lost"


@pytest.mark.parametrize("drops", [None, 1, 4])
def test_a_drop_spends_no_attempt(drops: int | None) -> None:
    signal = outcomes.dropped("box", drops, 3.0)
    assert isinstance(signal, JobPostponed)
    assert (signal.code, signal.after) == ("target_connection_lost", 3.0)


@pytest.mark.parametrize("drops", [5, 6])
def test_a_drop_too_many_is_the_end(drops: int) -> None:
    signal = outcomes.dropped("box", drops, 3.0)
    assert isinstance(signal, FailJob)
    assert signal.code == "target_connection_lost"
