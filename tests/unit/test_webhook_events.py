"""What an endpoint can be told of, and how that is named."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coatcheck.domain.errors import CoatcheckError
from coatcheck.domain.ids import new_id
from coatcheck.domain.states import State
from coatcheck.domain.webhooks import EVENTS, expand_events, first_delivery_at

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def test_a_star_is_every_end_and_nothing_else() -> None:
    assert expand_events(["*"]) == (
        "batch.cancelled",
        "batch.completed",
        "job.cancelled",
        "job.completed",
        "job.failed",
    )


def test_all_of_a_job_is_every_state_that_it_can_be_moved_to() -> None:
    assert set(expand_events(["job.*"])) == {f"job.{state}" for state in State} - {"job.staged"}


def test_failures_of_tasks_are_told_only_to_who_names_them() -> None:
    for name in EVENTS - {"task.failed"} | {"*", "job.*", "batch.*"}:
        assert "task.failed" not in expand_events([name])
    assert expand_events(["task.failed", "job.failed"]) == ("job.failed", "task.failed")


def test_alerts_are_told_only_to_who_names_them() -> None:
    for name in EVENTS - {"job.alert"} | {"*", "job.*", "batch.*"}:
        assert "job.alert" not in expand_events([name])
    assert expand_events(["job.alert"]) == ("job.alert",)


def test_usage_reports_are_told_only_to_who_names_them() -> None:
    for name in EVENTS - {"usage.report"} | {"*", "job.*", "batch.*"}:
        assert "usage.report" not in expand_events([name])
    assert expand_events(["usage.report"]) == ("usage.report",)


def test_what_is_named_twice_is_told_once() -> None:
    assert expand_events(["job.failed", "*", "job.failed"]) == expand_events(["*"])


@pytest.mark.parametrize("name", ["", "job", "job.", "job.staged", "Job.failed", "task.*", "**"])
def test_an_unknown_name_is_refused_with_those_that_are_known(name: str) -> None:
    with pytest.raises(CoatcheckError, match=r"events: .*job\.failed"):
        expand_events(["job.failed", name])


def test_no_event_at_all_is_refused() -> None:
    with pytest.raises(CoatcheckError, match="events: "):
        expand_events([])


@given(st.integers(0, 250 * 10**12), st.integers(0, 999))
def test_a_moment_s_first_id_is_that_of_its_millisecond(milliseconds: int, rest: int) -> None:
    moment = EPOCH + timedelta(milliseconds=milliseconds, microseconds=rest)
    assert first_delivery_at(moment).int == milliseconds << 80


def test_ids_that_are_made_now_come_after_this_moment_s_first() -> None:
    before = first_delivery_at(datetime.now(UTC))
    made = new_id()
    assert before <= made < first_delivery_at(datetime.now(UTC) + timedelta(seconds=1))
