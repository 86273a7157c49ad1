from __future__ import annotations

import pytest

from coatcheck.http.auth.authenticator import RecentCache


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cache(clock: Clock) -> RecentCache[str, int]:
    return RecentCache(10, entries_max=3, clock=clock)


def put(cache: RecentCache[str, int], **values: int) -> None:
    for key, value in values.items():
        cache.put(key, value, epoch=cache.epoch)


def test_a_value_is_remembered_for_its_time_and_no_longer(
    cache: RecentCache[str, int], clock: Clock
) -> None:
    put(cache, a=1)
    cache.put("b", 2, epoch=cache.epoch, seconds=3)
    cache.put("c", 3, epoch=cache.epoch, seconds=1000)
    clock.now += 2.9
    assert [cache.get(key) for key in "abc"] == [1, 2, 3]
    clock.now += 0.1
    assert [cache.get(key) for key in "abc"] == [1, None, 3]
    clock.now += 7
    assert [cache.get(key) for key in "abc"] == [None, None, None]


@pytest.mark.parametrize("seconds", [0, -5])
def test_what_has_ended_is_not_remembered(cache: RecentCache[str, int], seconds: float) -> None:
    cache.put("a", 1, epoch=cache.epoch, seconds=seconds)
    assert len(cache) == 0


def test_the_oldest_makes_room(cache: RecentCache[str, int]) -> None:
    put(cache, a=1, b=2, c=3)
    put(cache, a=4)  # the newest now
    put(cache, d=5)
    assert [cache.get(key) for key in "abcd"] == [4, None, 3, 5]
    assert len(cache) == 3


def test_the_usual_bound_is_ten_thousand() -> None:
    large: RecentCache[int, int] = RecentCache(300)
    for number in range(10_050):
        large.put(number, number, epoch=0)
    assert len(large) == 10_000
    assert large.get(49) is None
    assert large.get(50) == 50


def test_what_is_dropped_is_gone_and_the_rest_stays(cache: RecentCache[str, int]) -> None:
    put(cache, a=1, b=2, c=3)
    cache.drop(lambda key, value: key == "a" or value == 3)
    assert [cache.get(key) for key in "abc"] == [None, 2, None]


@pytest.mark.parametrize("how", ["drop", "clear"])
def test_what_was_read_before_a_drop_does_not_come_in_after_it(
    cache: RecentCache[str, int], how: str
) -> None:
    epoch = cache.epoch
    if how == "drop":
        cache.drop(lambda *_: False)
    else:
        cache.clear()
    cache.put("a", 1, epoch=epoch)
    assert cache.get("a") is None
