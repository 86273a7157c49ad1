"""Backoff: doubles, stops at its cap, and jitters upwards only."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coatcheck.db import notifications
from coatcheck.domain.retry import (
    DATABASE_BACKOFF,
    JOB_BACKOFF,
    LISTENER_BACKOFF,
    UNREACHABLE_BACKOFF,
    Backoff,
)

ALL = [JOB_BACKOFF, UNREACHABLE_BACKOFF, DATABASE_BACKOFF, LISTENER_BACKOFF]


def test_it_doubles_up_to_its_cap() -> None:
    backoff = Backoff(base_seconds=1.0, cap_seconds=10.0, jitter=0.5)
    assert [backoff.delay(n, 0.0) for n in range(6)] == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_jitter_adds_its_share_of_the_delay() -> None:
    backoff = Backoff(base_seconds=4.0, cap_seconds=100.0, jitter=0.5)
    assert backoff.delay(0, 0.5) == 5.0


@pytest.mark.parametrize("backoff", ALL)
@given(failures=st.integers(0, 10**6), random=st.floats(0, 1, exclude_max=True))
def test_a_delay_is_never_shorter_than_its_base_nor_far_over_its_cap(
    backoff: Backoff, failures: int, random: float
) -> None:
    delay = backoff.delay(failures, random)
    assert backoff.base_seconds <= delay <= backoff.cap_seconds * (1 + backoff.jitter)


def test_the_database_is_asked_again_after_half_a_second_to_five() -> None:
    assert (DATABASE_BACKOFF.base_seconds, DATABASE_BACKOFF.cap_seconds) == (0.5, 5.0)
    assert DATABASE_BACKOFF.jitter == 0.5


def test_that_the_database_is_back_is_noticed_in_time_for_a_claim_within_five_seconds() -> None:
    assert notifications.LISTENER_BACKOFF.delay(99, 0.999) < 3.0
