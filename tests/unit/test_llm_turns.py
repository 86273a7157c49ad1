"""Which llm job goes where: models by turns, urgent jobs first, organisations round robin."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coatcheck.domain.lanes import Lane
from coatcheck.products.llm.model_scheduler import (
    REMEMBERED_MAX,
    URGENT_STREAK_MAX,
    ModelQueue,
    ScheduleChoice,
    TargetLoad,
    TargetTurn,
    choose,
)

TURN_SECONDS = 30.0
ROOM = {Lane.URGENT.value: 1_000, Lane.STANDARD.value: 1_000}
LONG_AGO = -1_000_000.0
NOW = 1_000_000.0


def line(
    model: str = "a",
    *,
    org: str = "acme",
    lane: Lane = Lane.STANDARD,
    jobs: int = 1,
    since: float = LONG_AGO,
    limits: tuple[str, ...] = (),
) -> ModelQueue:
    ages = tuple(since + number for number in range(jobs))
    return ModelQueue(lane.value, "llm.post__chat", org, model, ages, limits)


def target(
    name: str = "gpu",
    free: int = 1,
    *,
    models: Sequence[str] | None = None,
    resident: Sequence[str] = (),
    at_work_on: Sequence[str] = (),
    turn: TargetTurn | None = None,
) -> TargetLoad:
    return TargetLoad(
        name,
        free,
        None if models is None else frozenset(models),
        frozenset(resident),
        frozenset(at_work_on),
        turn or TargetTurn(),
    )


def chosen(
    lines: Sequence[ModelQueue], *targets: TargetLoad, now: float = NOW, **left: int
) -> ScheduleChoice:
    return choose(lines, targets, ROOM, now=now, turn_seconds=TURN_SECONDS, left=left)


def models_of(choice: ScheduleChoice) -> list[str]:
    return [pick.queue.model for pick in choice.picks]


@dataclass
class Shop:
    """A target with room for one loaded model, and one job at a time, whose queues never end.

    ``looks`` are how far behind each claim's look at the loaded models is, in claims.
    """

    lines: list[ModelQueue]
    seconds: Sequence[float]
    looks: Sequence[int] = (0,)
    now: float = 0.0
    turn: TargetTurn = field(default_factory=TargetTurn)
    loaded: list[str] = field(default_factory=lambda: [""])
    picks: list[tuple[float, ModelQueue]] = field(default_factory=list)

    def serve(self, jobs: int) -> None:
        for number in range(jobs):
            behind = self.looks[number % len(self.looks)]
            seen = self.loaded[max(0, len(self.loaded) - 1 - behind)]
            choice = chosen(
                self.lines, target(resident=[seen] if seen else [], turn=self.turn), now=self.now
            )
            (pick,) = choice.picks
            self.turn = choice.turns["gpu"]
            self.picks.append((self.now, pick.queue))
            self.loaded.append(pick.queue.model)
            self.now += self.seconds[number % len(self.seconds)]

    def is_served_within(self, seconds: float, model: str) -> bool:
        """Whether a job of the model is begun within so long from now on."""
        deadline = self.now + seconds
        while self.now <= deadline:
            self.serve(1)
            if self.picks[-1][1].model == model:
                return True
        return False

    @property
    def switches(self) -> int:
        served = [pick.model for _, pick in self.picks]
        return sum(one != next_one for one, next_one in pairwise(served))


durations = st.lists(st.floats(2.0, 60.0), min_size=1, max_size=20)
looks = st.lists(st.integers(0, 5), min_size=1, max_size=10)


@settings(max_examples=40)
@given(durations, looks, st.floats(0.0, 100.0))
def test_a_job_waits_for_one_turn_of_a_model_whose_jobs_never_end(
    seconds: list[float], looks: list[int], arrives: float
) -> None:
    shop = Shop([line("busy", jobs=16)], seconds, looks)
    while shop.now < arrives:
        shop.serve(1)
    shop.lines.append(line("rare", since=shop.now))
    assert shop.is_served_within(TURN_SECONDS + max(seconds), "rare")


@settings(max_examples=40)
@given(durations, looks, st.integers(2, 6))
def test_a_model_waits_for_one_turn_of_each_other_however_old_their_queues(
    seconds: list[float], looks: list[int], busy: int
) -> None:
    shop = Shop([line(f"busy {n}", jobs=16) for n in range(busy)], seconds, looks)
    shop.serve(10)
    shop.lines.append(line("rare", since=shop.now))
    assert shop.is_served_within(busy * (TURN_SECONDS + max(seconds)), "rare")


@settings(max_examples=40)
@given(durations, looks)
def test_models_are_not_swapped_more_often_than_once_a_turn(
    seconds: list[float], looks: list[int]
) -> None:
    """Even if the worker that claims has not looked for a while what is loaded."""
    shop = Shop([line("a", jobs=16), line("b", jobs=16)], seconds, looks)
    shop.serve(100)
    assert shop.switches <= shop.now / TURN_SECONDS + 1


@given(durations)
def test_models_that_are_loaded_together_need_no_turns(seconds: list[float]) -> None:
    """Nobody has to wait for the one while the other is served: the oldest goes first."""
    turn, now, served = TargetTurn("a", began=0.0), 1.0, []
    ages = {"a": 0.0, "b": 0.5}
    for number in range(20):
        lines = [line(model, since=since) for model, since in ages.items()]
        choice = chosen(lines, target(resident=["a", "b"], turn=turn), now=now)
        served += models_of(choice)
        ages[served[-1]] = now
        turn = choice.turns["gpu"]
        now += seconds[number % len(seconds)]
    assert served == ["a", "b"] * 10


@given(
    st.lists(st.integers(0, 9), min_size=2, max_size=10, unique=True),
    st.integers(1, 30),
)
def test_organisations_go_round_robin(orgs: list[int], rounds: int) -> None:
    """However old the jobs of one of them are."""
    shop = Shop([line(org=f"org {n}", jobs=16, since=LONG_AGO * n) for n in orgs], [1.0])
    shop.serve(rounds * len(orgs))
    served = [pick.org for _, pick in shop.picks]
    for begin in range(0, len(served), len(orgs)):
        assert len({*served[begin : begin + len(orgs)]}) == len(orgs)


def test_an_urgent_stream_of_one_organisation_does_not_choose_who_goes_between() -> None:
    shop = Shop(
        [
            line(org="m", lane=Lane.URGENT, jobs=16),
            line(org="a", jobs=16),
            line(org="z", jobs=16),
        ],
        [1.0],
    )
    shop.serve(100)
    assert Counter(pick.org for _, pick in shop.picks) == {"m": 80, "a": 10, "z": 10}


def test_urgent_jobs_of_an_organisation_are_not_held_against_its_others() -> None:
    shop = Shop(
        [line(org="m", lane=Lane.URGENT, jobs=16), line(org="m", jobs=16), line(org="a", jobs=16)],
        [1.0],
    )
    shop.serve(100)
    others = Counter(pick.org for _, pick in shop.picks if not pick.is_urgent)
    assert others == {"m": 10, "a": 10}


def test_turns_of_another_model_do_not_choose_who_goes_between() -> None:
    """Each turn is over with its first job."""
    shop = Shop(
        [line("a", org="m", jobs=16), line("b", org="a", jobs=16), line("b", org="z", jobs=16)],
        [TURN_SECONDS],
    )
    shop.serve(100)
    assert Counter(pick.org for _, pick in shop.picks) == {"m": 50, "a": 25, "z": 25}


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60))
def test_urgent_jobs_go_first_and_never_too_many_in_a_row(waits: list[tuple[bool, bool]]) -> None:
    urgent, other = line(lane=Lane.URGENT), line(since=LONG_AGO - 1)
    turn = TargetTurn()
    row = 0
    for urgent_waits, other_waits in waits:
        lines = [urgent] * urgent_waits + [other] * other_waits
        picks = (choice := chosen(lines, target(turn=turn))).picks
        if not lines:
            assert picks == ()
            continue
        turn = choice.turns["gpu"]
        if urgent_waits and other_waits:
            assert picks[0].queue == (other if row >= URGENT_STREAK_MAX else urgent)
        row = row + 1 if picks[0].queue.is_urgent else 0


some_models = st.sampled_from("abcd")
some_lines = st.lists(
    st.builds(
        lambda model, org, lane, jobs, since, limits: line(
            model, org=org, lane=lane, jobs=jobs, since=since, limits=tuple(limits)
        ),
        some_models,
        st.sampled_from("xyz"),
        st.sampled_from([Lane.URGENT, Lane.STANDARD]),
        st.integers(1, 5),
        st.floats(0.0, NOW),
        st.sets(st.sampled_from(["one", "two"])),
    ),
    max_size=12,
    unique_by=lambda it: (it.model, it.org, it.lane),
)
some_targets = st.lists(
    st.builds(
        target,
        st.sampled_from(["t1", "t2", "t3"]),
        st.integers(0, 4),
        models=st.none() | st.sets(some_models),
        resident=st.sets(some_models),
        at_work_on=st.sets(some_models),
        turn=st.builds(TargetTurn, st.none() | some_models, st.floats(NOW - 100, NOW)),
    ),
    max_size=3,
    unique_by=lambda it: it.name,
)


@given(
    some_lines,
    some_targets,
    st.fixed_dictionaries({"urgent": st.integers(0, 6), "standard": st.integers(0, 6)}),
    st.fixed_dictionaries({"one": st.integers(0, 3), "two": st.integers(0, 3)}),
)
def test_everything_that_may_go_goes_and_nothing_else(
    lines: list[ModelQueue], targets: list[TargetLoad], room: dict[str, int], left: dict[str, int]
) -> None:
    picks = choose(lines, targets, room, now=NOW, turn_seconds=TURN_SECONDS, left=left).picks

    given_to = Counter(pick.target for pick in picks)
    of_line = Counter(pick.queue for pick in picks)
    of_lane = Counter(pick.queue.lane for pick in picks)
    of_limit = Counter(limit for pick in picks for limit in pick.queue.limits)
    assert all(given_to[each.name] <= each.free for each in targets)
    assert all(of_line[each] <= len(each.since) for each in lines)
    assert all(of_lane[lane] <= places for lane, places in room.items())
    assert all(of_limit[limit] <= places for limit, places in left.items())

    listed = {model for each in targets for model in each.models or ()}
    by_name = {each.name: each for each in targets}

    def suits(model: str, where: TargetLoad) -> bool:
        if model in listed:
            return model in (where.models or ())
        return where.models is None or all(each.models is not None for each in targets)

    assert all(suits(pick.queue.model, by_name[pick.target]) for pick in picks)
    for each in lines:
        open_to_it = (
            of_line[each] < len(each.since)
            and of_lane[each.lane] < room[each.lane]
            and all(of_limit[limit] < left[limit] for limit in each.limits)
        )
        for where in targets:
            idle = given_to[where.name] < where.free
            assert not (open_to_it and idle and suits(each.model, where))


def test_a_loaded_model_goes_before_an_older_job_of_another_while_its_turn_lasts() -> None:
    lines = [line("other", since=1.0), line("loaded", since=2.0)]
    begun = TargetTurn("loaded", began=NOW - TURN_SECONDS + 1)
    assert models_of(chosen(lines, target(resident=["loaded"], turn=begun))) == ["loaded"]
    over = replace(begun, began=NOW - TURN_SECONDS)
    assert models_of(chosen(lines, target(resident=["loaded"], turn=over))) == ["other"]


def test_a_turn_does_not_end_while_nobody_waits_for_another_model() -> None:
    over = TargetTurn("loaded", began=LONG_AGO)
    choice = chosen([line("loaded")], target(resident=["loaded"], turn=over))
    assert models_of(choice) == ["loaded"]
    assert choice.turns["gpu"].began == LONG_AGO


def test_a_target_that_has_nothing_left_of_its_turn_takes_what_there_is() -> None:
    turn = TargetTurn("loaded", began=NOW - 1)
    choice = chosen([line("other")], target(resident=["loaded"], turn=turn))
    assert models_of(choice) == ["other"]
    assert choice.turns["gpu"].model == "other"
    assert choice.turns["gpu"].began == NOW


def test_a_job_goes_where_its_model_is_loaded() -> None:
    choice = chosen(
        [line("a"), line("b", since=LONG_AGO - 1)],
        target("first", resident=["b"]),
        target("second", resident=["a"]),
    )
    assert {(pick.queue.model, pick.target) for pick in choice.picks} == {
        ("a", "second"),
        ("b", "first"),
    }
    assert not any(pick.loading for pick in choice.picks)


def test_no_target_loads_a_model_for_a_job_that_another_could_begin_at_once() -> None:
    (pick,) = chosen([line("a")], target("empty"), target("has it", resident=["a"])).picks
    assert (pick.target, pick.loading) == ("has it", False)


def test_jobs_are_spread_over_targets() -> None:
    choice = chosen([line(jobs=4)], target("first", 4), target("second", 4))
    assert Counter(pick.target for pick in choice.picks) == {"first": 2, "second": 2}


@pytest.mark.parametrize(
    ("resident", "at_work_on", "loading"),
    [
        (["a"], [], False),
        ([], [], True),
        (["b"], ["b"], True),
        (["a"], ["b"], True),  # b is being loaded, and may take the place of a
        (["a", "b"], ["b"], False),
    ],
)
def test_a_job_is_shown_as_loading_if_its_model_has_to_be_loaded(
    resident: list[str], at_work_on: list[str], loading: bool
) -> None:
    at_work = target(
        resident=resident, at_work_on=at_work_on, turn=TargetTurn("b", began=NOW - TURN_SECONDS)
    )
    (pick,) = chosen([line("a")], at_work).picks
    assert pick.loading is loading


def test_a_model_goes_only_to_targets_that_list_it() -> None:
    choice = chosen(
        [line("a", jobs=4)], target("has it", 1, models=["a"]), target("has not", 4, models=["b"])
    )
    assert [pick.target for pick in choice.picks] == ["has it"]


def test_a_model_that_nobody_lists_waits_for_a_target_that_was_never_asked() -> None:
    """Another one would only say that it has no such model."""
    asleep = target("asleep", 0)
    assert chosen([line("a")], target("awake", models=["b"]), asleep).picks == ()
    (pick,) = chosen([line("a")], target("awake", models=["b"]), replace(asleep, free=1)).picks
    assert pick.target == "asleep"


def test_a_model_that_nobody_has_goes_to_any_target_to_be_told_so() -> None:
    (pick,) = chosen([line("a")], target(models=["b"])).picks
    assert pick.target == "gpu"


def test_a_limit_that_is_used_up_keeps_no_other_line_back() -> None:
    lines = [
        line("a", org="capped", jobs=4, limits=("cap",)),
        line("b", org="capped", jobs=4, limits=("cap",)),
        line("a", org="free", jobs=1),
    ]
    choice = chosen(lines, target(free=9), cap=2)
    assert Counter(pick.queue.org for pick in choice.picks) == {"capped": 2, "free": 1}


def test_what_a_target_remembers_is_bounded_and_still_fair() -> None:
    orgs = [f"org {number:04}" for number in range(REMEMBERED_MAX + 50)]
    shop = Shop([line(f"model {org}", org=org, since=0.0) for org in orgs], [TURN_SECONDS])
    for _ in range(2 * len(orgs)):
        shop.serve(1)
        began, served = shop.picks[-1]
        shop.lines.remove(served)
        shop.lines.append(replace(served, since=(began + TURN_SECONDS,)))
    assert len(shop.turn.served) == REMEMBERED_MAX
    assert len(shop.turn.ended) == REMEMBERED_MAX
    assert Counter(pick.org for _, pick in shop.picks) == dict.fromkeys(orgs, 2)
