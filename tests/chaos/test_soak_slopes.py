"""The soak's arithmetic finds what grows, and leaves alone what does not."""

from __future__ import annotations

import random

import pytest

from chaos.soak.slopes import POINTS_MIN, Tolerance, slope_of

TIMES = [10.0 * n for n in range(360)]
TOLERANCE = Tolerance(part=0.10, amount=1.0)


def noise(scale: float) -> list[float]:
    rng = random.Random(5)
    return [rng.gauss(0, scale) for _ in TIMES]


def test_a_leak_is_found_through_noise() -> None:
    leaking = [100 + 0.02 * t + n for t, n in zip(TIMES, noise(5), strict=True)]
    slope = slope_of(TIMES, leaking, TOLERANCE)
    assert slope is not None
    assert slope.grows
    assert slope.growth == pytest.approx(0.02 * 1_800, rel=0.1)
    assert slope.growth_at_least < slope.growth < slope.growth_at_most


def test_noise_about_a_level_does_not_grow() -> None:
    slope = slope_of(TIMES, [100 + n for n in noise(20)], TOLERANCE)
    assert slope is not None
    assert not slope.grows


def test_a_saw_does_not_grow() -> None:
    """As dead rows do between two vacuums."""
    slope = slope_of(TIMES, [t % 600 for t in TIMES], TOLERANCE)
    assert slope is not None
    assert not slope.grows


def test_what_grew_while_warming_up_does_not_count() -> None:
    slope = slope_of(TIMES, [min(t, 1_500.0) for t in TIMES], TOLERANCE)
    assert slope is not None
    assert (slope.growth, slope.grows) == (0.0, False)


def test_a_few_outliers_do_not_hide_a_leak_nor_make_one() -> None:
    flat = [100.0 if n % 20 else 5_000.0 for n in range(len(TIMES))]
    leaking = [value + 0.02 * t for value, t in zip(flat, TIMES, strict=True)]
    assert not slope_of(TIMES, flat, TOLERANCE).grows  # type: ignore[union-attr]
    assert slope_of(TIMES, leaking, TOLERANCE).grows  # type: ignore[union-attr]


def test_what_shrinks_does_not_grow() -> None:
    slope = slope_of(TIMES, [1_000 - 0.1 * t for t in TIMES], TOLERANCE)
    assert slope is not None
    assert slope.growth < 0
    assert not slope.grows


def test_a_little_is_tolerated_where_the_level_is_low() -> None:
    files = [3 + 0.9 * t / TIMES[-1] for t in TIMES]
    assert not slope_of(TIMES, files, TOLERANCE).grows  # type: ignore[union-attr]
    assert slope_of(TIMES, files, Tolerance(0.10, 0.1)).grows  # type: ignore[union-attr]


def test_too_few_points_say_nothing() -> None:
    assert slope_of([], [], TOLERANCE) is None
    assert slope_of(TIMES[:POINTS_MIN], TIMES[:POINTS_MIN], TOLERANCE) is None
