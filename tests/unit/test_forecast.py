"""Distributions of times, and what is expected from them."""

from __future__ import annotations

import random

import pytest

from coatcheck.domain.durations import BOUNDS_SECONDS, BUCKETS, bucket_of, quantile, trimmed
from coatcheck.domain.explanation import (
    Spread,
    end_by_progress,
    eta_of,
    rates_of,
    retry_after,
    retry_when_due,
    spread_of,
    start_of,
)


def distribution(seconds: list[float]) -> list[int]:
    counts = [0] * BUCKETS
    for each in seconds:
        counts[bucket_of(each)] += 1
    return counts


def test_buckets_reach_from_a_millisecond_to_a_day() -> None:
    assert BOUNDS_SECONDS[0] == 0.001
    assert BOUNDS_SECONDS[-1] > 86_400
    assert bucket_of(-1.0) == bucket_of(0.0) == 0
    assert bucket_of(10**9) == BUCKETS - 1


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_a_quantile_of_counts_is_near_that_of_the_times(share: float) -> None:
    drawn = random.Random(7)
    times = sorted(drawn.lognormvariate(0, 2) for _ in range(5_000))
    true = times[int(share * len(times))]
    found = quantile(distribution(times), share)
    assert found == pytest.approx(true, rel=0.2)


def test_there_is_no_quantile_of_nothing() -> None:
    assert quantile([], 0.5) is None
    assert quantile([0, 0], 0.5) is None


def test_empty_buckets_at_the_end_are_left_out() -> None:
    assert trimmed([0, 3, 0, 1, 0, 0]) == [0, 3, 0, 1]
    assert trimmed([0, 0]) == []


def test_few_samples_count_less_than_what_the_lane_takes() -> None:
    lane = distribution([10.0] * 100)
    assert spread_of([1.0] * 5, lane) == Spread(1.0, 1.0)
    of_lane = spread_of([1.0] * 4, lane)
    assert of_lane is not None
    assert of_lane.p50 == pytest.approx(10.0, rel=0.3)
    assert spread_of([1.0, 3.0], []) == Spread(3.0, 3.0)
    assert spread_of([], []) is None


def test_a_slow_minute_is_what_nine_of_ten_forecasts_go_by() -> None:
    minutes = [(60, 60.0)] * 8 + [(6, 60.0)] * 2 + [(0, 60.0)]
    rates = rates_of(minutes)
    assert rates == (1.0, 0.1)
    assert start_of(9, 2, rates) == Spread(20.0, 200.0)
    assert rates_of([(0, 60.0)]) is None


def test_of_the_minute_that_is_under_way_the_seconds_that_have_passed_count() -> None:
    assert rates_of([(10, 5.0)]) == (2.0, 2.0)
    assert rates_of([(10, 0.01)]) == (10.0, 10.0)


def test_who_reports_progress_is_believed() -> None:
    assert end_by_progress(60.0, 0.25) == Spread(180.0, 360.0)
    assert end_by_progress(60.0, 1.0) == Spread(0.0, 0.0)
    assert end_by_progress(60.0, 0.001) is None
    assert end_by_progress(60.0, None) is None


def test_what_has_taken_longer_than_usual_may_take_half_as_long_again() -> None:
    assert Spread(10.0, 40.0).less(20.0) == Spread(10.0, 20.0)


def test_without_a_running_time_nothing_is_expected() -> None:
    assert eta_of(Spread(1.0, 2.0), None) is None


def test_when_to_ask_again_is_bounded() -> None:
    assert [retry_after(seconds) for seconds in (0.0, 10.0, 10_000.0)] == [1, 5, 60]
    assert [retry_when_due(seconds) for seconds in (0.0, 10.0, 10_000.0)] == [1, 10, 3_600]
