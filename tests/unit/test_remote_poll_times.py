"""When work that is done elsewhere is looked at."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coatcheck.domain.remote_work import (
    FIRST_POLL_SECONDS,
    POLL_SECONDS_MAX,
    seconds_after_faults,
    seconds_to_next_poll,
)

AGES = st.floats(0, 1e6)


def looks(takes: float, usual: float | None, spread: float | None = None) -> list[float]:
    """When it is looked at until it is done."""
    at = [FIRST_POLL_SECONDS]
    while at[-1] < takes:
        at.append(at[-1] + seconds_to_next_poll(at[-1], len(at), usual, spread))
    return at


@given(AGES, st.integers(1, 1_000), st.none() | AGES, AGES)
def test_every_pause_is_within_its_bounds(
    age: float, count: int, usual: float | None, spread: float
) -> None:
    pause = seconds_to_next_poll(age, count, usual, spread)
    assert FIRST_POLL_SECONDS <= pause <= POLL_SECONDS_MAX


@given(st.floats(1, 3_600))
def test_a_result_waits_for_no_more_than_a_part_of_the_time_that_it_took(takes: float) -> None:
    assert looks(takes, None)[-1] - takes <= max(FIRST_POLL_SECONDS, takes * 0.25)


@pytest.mark.parametrize("usual", [4.0, 60.0, 600.0])
def test_what_takes_as_long_as_usual_is_found_sooner_and_asked_about_less(usual: float) -> None:
    known, unknown = looks(usual * 1.01, usual, usual * 0.02), looks(usual * 1.01, None)
    assert known[-1] - usual * 1.01 <= max(FIRST_POLL_SECONDS, usual * 0.05)
    assert len(known) <= len(unknown)


@given(st.floats(2, 8))
def test_what_is_sometimes_early_is_looked_for_early(takes: float) -> None:
    assert looks(takes, usual=5.0, spread=1.5)[-1] - takes <= takes * 0.25


def test_the_first_looks_come_fast_whatever_is_usual() -> None:
    assert looks(1.0, 3_600.0, 10.0)[1] <= 1.0


def test_who_says_nothing_sensible_is_asked_ever_more_seldom_but_asked() -> None:
    pauses = [seconds_after_faults(faults) for faults in range(1, 12)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == POLL_SECONDS_MAX


def test_who_asks_for_peace_gets_it() -> None:
    assert seconds_after_faults(1, 120.0) == 120.0
    assert seconds_after_faults(5, 0.0) == seconds_after_faults(5)
