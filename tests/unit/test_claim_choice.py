"""Which queues under limits give jobs: fair to all, and within every limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coatcheck.domain.claim_choice import (
    AfterScan,
    KeyScan,
    Limit,
    Queue,
    QueueGroup,
    RunRates,
    after_scan,
    choose,
    shares,
    tokens,
)
from coatcheck.domain.lanes import Lane
from coatcheck.domain.limits import RATE_BURST_SECONDS, RUN_QUEUES_SCANNED_MAX

ENDPOINT = "demo.post__work"
STANDARD = Lane.STANDARD.value
DRAWS = 64
"""What is drawn by lot goes to one of two in so many draws, but for one chance in 2**63."""


def group(org: str = "a", name: str = "", *limits: Limit, lane: Lane = Lane.STANDARD) -> QueueGroup:
    return QueueGroup(lane.value, ENDPOINT, org, name, (("lane", lane.value), *limits))


def queue(org: str = "a", name: str = "", *limits: Limit, lane: Lane = Lane.STANDARD) -> Queue:
    of = group(org, name, *limits, lane=lane)
    return Queue(of, name, of.limits)


def picked(queues: Sequence[Queue], room: int, seed: int = 1, **free: int) -> list[str]:
    """The organisations that get a job, in turn; ``free`` by kinds of limits."""
    chosen = choose(queues, {("lane", STANDARD): room} | _free(queues, free), Random(seed))
    return [each.group.org for each in chosen]


def _free(queues: Sequence[Queue], by_kind: Mapping[str, int]) -> dict[Limit, int]:
    limits = {limit for each in queues for limit in each.limits}
    return {limit: by_kind[limit[0]] for limit in limits if limit[0] != "lane"}


def test_organisations_take_turns_whatever_they_have_waiting() -> None:
    queues = [queue("few"), *(queue("many", f"{number}") for number in range(50))]
    assert Counter(picked(queues, 10)) == {"few": 5, "many": 5}
    assert [*map(len, map(set, _pairs(picked(queues, 10))))] == [2] * 5, "one after the other"


def test_the_queues_of_a_run_share_its_turns_and_others_have_as_many() -> None:
    run = group("a", "run")
    queues = [*(Queue(run, f"run/{number}", run.limits) for number in range(30)), queue("a", "one")]
    chosen = choose(queues, {("lane", STANDARD): 20}, Random(1))
    assert Counter(each.group.name for each in chosen) == {"run": 10, "one": 10}
    of_run = [each.key for each in chosen if each.group is run]
    assert of_run == [f"run/{number}" for number in range(10)], "each once, in the order given"


def test_with_room_for_one_an_organisation_has_one_lot_however_many_queues_it_has() -> None:
    queues = [queue("few"), *(queue("many", f"{number}") for number in range(200))]
    first = Counter(picked(queues, 1, seed)[0] for seed in range(10 * DRAWS))
    assert first["few"] > 2 * DRAWS


def test_what_one_cannot_use_goes_to_the_others() -> None:
    queues = [queue("a", "", ("org", "a")), queue("b")]
    assert Counter(picked(queues, 10, org=2)) == {"a": 2, "b": 8}


def test_a_queue_over_one_limit_uses_no_permit_of_another() -> None:
    shared = ("endpoint", ENDPOINT)
    queues = [queue("a", "x", shared, ("queue", "x")), queue("a", "y", shared)]
    free = {("lane", STANDARD): 10, shared: 4, ("queue", "x"): 1}
    chosen = choose(queues, free, Random(1))
    assert Counter(each.key for each in chosen) == {"x": 1, "y": 3}


def test_urgent_jobs_have_the_permits_that_lanes_share() -> None:
    queues = [
        queue("a", "slow", ("org", "a"), lane=Lane.BULK),
        queue("a", "fast", ("org", "a"), lane=Lane.URGENT),
    ]
    free = {("lane", "urgent"): 5, ("lane", "bulk"): 5, ("org", "a"): 6}
    chosen = choose(queues, free, Random(1))
    assert Counter(each.key for each in chosen) == {"fast": 5, "slow": 1}


def _pairs(orgs: list[str]) -> Iterator[list[str]]:
    return (orgs[at : at + 2] for at in range(0, len(orgs), 2))


@dataclass(frozen=True)
class World:
    queues: list[Queue]
    free: dict[Limit, int]
    room: dict[str, int]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Organisations with queues and runs in two lanes, under overlapping limits."""
    room = {lane: draw(st.integers(0, 12)) for lane in ("urgent", "bulk")}
    free: dict[Limit, int] = {("lane", lane): slots for lane, slots in room.items()}
    named = st.sampled_from([("shared",), ("org", "a"), ("org", "b"), ("rate", "x"), ("rate", "y")])
    free |= {limit: draw(st.integers(0, 6)) for limit in draw(st.sets(named))}
    queues = []
    for org in draw(st.sets(st.sampled_from("abcd"), min_size=1)):
        for name in draw(st.sets(st.sampled_from("mnop"), min_size=1)):
            lane = draw(st.sampled_from([*room]))
            limits = [limit for limit in free if limit[0] != "lane" and draw(st.booleans())]
            of = QueueGroup(lane, ENDPOINT, org, name, (("lane", lane), *limits))
            for key in draw(st.sets(st.sampled_from("12345"), min_size=1)):
                own: Limit = ("queue", org, name, key)
                free[own] = draw(st.integers(0, 5))
                queues.append(Queue(of, key, (*of.limits, own)))
    return World(queues, free, room)


def under(limit: Limit, picks: Sequence[Queue]) -> int:
    return sum(limit in each.limits for each in picks)


@given(worlds(), st.integers())
def test_no_limit_is_exceeded_and_nothing_that_is_allowed_is_left(world: World, seed: int) -> None:
    picks = choose(world.queues, world.free, Random(seed))
    left = {limit: free - under(limit, picks) for limit, free in world.free.items()}
    assert min(left.values()) >= 0
    assert not [each for each in world.queues if all(left[limit] > 0 for limit in each.limits)]


@given(worlds(), st.integers())
def test_nobody_who_could_have_had_more_is_more_than_one_job_behind(
    world: World, seed: int
) -> None:
    """Between organisations of a lane, groups of an organisation, and queues of a group.

    Who was stopped by a limit of its own may be further behind; here, whoever could still go on
    if only the lane had more room.
    """
    for lane, slots in world.room.items():
        picks = choose(world.queues, world.free, Random(seed))
        of_lane = [each for each in picks if each.group.lane == lane]
        if not 0 < slots == len(of_lane):
            continue
        left = {limit: free - under(limit, picks) for limit, free in world.free.items()}
        hungry = [
            each
            for each in world.queues
            if each.group.lane == lane and all(left[limit] > 0 for limit in each.limits[1:])
        ]
        orgs = Counter(each.group.org for each in of_lane)
        groups = Counter(each.group for each in of_lane)
        keys = Counter(of_lane)
        for each in hungry:
            same_org = [it for it in groups if it.org == each.group.org]
            assert orgs[each.group.org] >= max(orgs.values()) - 1
            assert groups[each.group] >= max(map(groups.__getitem__, same_org), default=0) - 1
            same_group = [it for it in keys if it.group is each.group]
            assert keys[each] >= max(map(keys.__getitem__, same_group), default=0) - 1


@given(worlds())
def test_the_same_lots_give_the_same_choice(world: World) -> None:
    assert choose(world.queues, world.free, Random(7)) == choose(
        world.queues, world.free, Random(7)
    )


@given(st.integers(1, 500), st.lists(st.integers(1, 20), min_size=1, max_size=30))
def test_shares_add_up_to_the_room_and_one_more_for_each_at_most(
    room: int, sizes: list[int]
) -> None:
    groups = [group(f"{org}", f"{at}") for org, size in enumerate(sizes) for at in range(size)]
    parts = shares(groups, {STANDARD: room}, {("lane", STANDARD): room})
    assert set(parts) == set(groups)
    assert min(parts.values()) >= 1
    of_org = Counter[str]()
    for each, part in parts.items():
        of_org[each.org] += part
    for org, size in enumerate(sizes):
        fair = ceil(room / len(sizes))
        assert fair <= of_org[f"{org}"] < fair + size


def test_a_share_is_within_the_limits_of_its_group() -> None:
    one = group("a", "run", ("rate", "a", "run"))
    free = {("lane", STANDARD): 100, ("rate", "a", "run"): 3}
    assert shares([one], {STANDARD: 100}, free) == {one: 3}


@pytest.mark.parametrize(
    ("per_second", "ahead", "allowed"),
    [
        (0.001, None, 1),
        (0.001, RATE_BURST_SECONDS, 1),
        (0.001, 0.06, 0),
        (20.0, None, 2),
        (20.0, -100.0, 2),
        (20.0, RATE_BURST_SECONDS / 2, 1),
        (1_000.0, 0.0, 51),
        (1_000.0, 0.06, 0),
        (100_000.0, 0.01, 4001),
    ],
)
def test_a_rate_allows_what_a_twentieth_of_a_second_holds_and_one(
    per_second: float, ahead: float | None, allowed: int
) -> None:
    assert tokens(per_second, ahead) == allowed


@given(st.floats(0.001, 100_000.0), st.lists(st.floats(0, 2), min_size=1, max_size=40))
def test_however_claims_come_no_more_start_than_the_rate_and_its_burst(
    per_second: float, pauses: list[float]
) -> None:
    now, in_step, started = 0.0, 0.0, 0
    for pause in pauses:
        now += pause
        starts = tokens(per_second, in_step - now)
        in_step = max(in_step, now) + starts / per_second
        started += starts
    assert started <= (1 + per_second * (now + RATE_BURST_SECONDS)) * (1 + 1e-9)


def rates(looked_to: str = "", *, key_per_second: float | None = 1.0) -> RunRates:
    return RunRates(None, key_per_second, None, looked_to, None)


def test_a_scan_that_found_enough_ends_at_the_last_one() -> None:
    after = after_scan(rates(), KeyScan(3, 3, "c", is_round=False), 3)
    assert after == AfterScan("c", None, unfinished=False)


def test_a_scan_that_passed_too_many_goes_on_from_there_at_once() -> None:
    scan = KeyScan(RUN_QUEUES_SCANNED_MAX, 0, "k", is_round=False)
    assert after_scan(rates(), scan, 3) == AfterScan("k", None, unfinished=True)


def test_after_a_whole_round_in_vain_there_is_a_pause_as_long_as_the_round_was() -> None:
    short = after_scan(rates(), KeyScan(10, 0, "", is_round=True), 3)
    long = after_scan(rates(), KeyScan(100, 0, "", is_round=True), 3)
    assert (short.looked_to, short.unfinished) == ("", False)
    assert 0 < (short.pause_seconds or 0) < (long.pause_seconds or 0)
    part = after_scan(rates("m"), KeyScan(1, 0, "", is_round=True), 3)
    assert (part.pause_seconds or 0) > (long.pause_seconds or 0), "it saw only a part of them"


def test_a_round_that_found_some_or_a_run_without_rates_of_its_keys_has_no_pause() -> None:
    some = after_scan(rates(), KeyScan(10, 1, "x", is_round=True), 3)
    assert some == AfterScan("", None, unfinished=False)
    unrated = after_scan(rates(key_per_second=None), KeyScan(1, 0, "", is_round=True), 3)
    assert unrated.pause_seconds is None
