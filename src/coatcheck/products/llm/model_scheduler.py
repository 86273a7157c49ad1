"""Which waiting llm job goes to which target next. Pure: times are numbers that the caller gives.

Loading a model takes long, so a target works on the models it has loaded for a turn, and on another
one when the turn is over and somebody waits for it. Within a turn urgent jobs go first, though not
always, and organisations by turns. docs/adr/0024 has the reasons.

Who has to wait is bounded. A model that is waited for gets its turn on a target after at most one
turn of each other model that is waited for there; then every organisation has its job after at most
one of each of the others, in its lane's share.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, TypeVar

from coatcheck.domain.lanes import Lane

URGENT_STREAK_MAX: Final = 4
"""So many urgent jobs go in a row while others wait."""
REMEMBERED_MAX: Final = 200
"""Models, and organisations, whose last turn a target remembers."""

_URGENT: Final = Lane.URGENT.value

_Moment = TypeVar("_Moment", int, float)


@dataclass(frozen=True, slots=True)
class ModelQueue:
    """The jobs of one organisation for one model, in one lane, oldest first.

    ``since`` has the times from which the oldest of them have been waiting. ``limits`` names those
    that somebody has set on its organisation, its model or its endpoint.
    """

    lane: str
    endpoint: str
    org: str
    model: str
    since: tuple[float, ...]
    limits: tuple[str, ...] = ()

    @property
    def is_urgent(self) -> bool:
        return self.lane == _URGENT


@dataclass(frozen=True, slots=True)
class TargetTurn:
    """What a target remembers of what it was given.

    ``model`` has the turn, which ``began`` with the last change that took a load. ``ended`` says
    when other models had it last. ``picks`` are numbered; ``served`` has the number of the last one
    that was an organisation's, of its urgent lines and of its others.
    """

    model: str | None = None
    began: float = 0.0
    urgent_streak: int = 0
    picks: int = 0
    ended: Mapping[str, float] = field(default_factory=dict)
    served: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TargetLoad:
    """A target as it is now: ``free`` permits, the models it lists (None if nobody knows), those it
    has loaded, those it is at work on, and its turn."""

    name: str
    free: int
    models: frozenset[str] | None
    resident: frozenset[str]
    at_work_on: frozenset[str] = frozenset()
    turn: TargetTurn = TargetTurn()


@dataclass(frozen=True, slots=True)
class SchedulePick:
    """The next job of a line goes to a target. ``loading``: it has to load the model first."""

    line: ModelQueue
    target: str
    loading: bool


@dataclass(frozen=True, slots=True)
class ScheduleChoice:
    """What was chosen, in order, and what the targets that were given something remember now."""

    picks: tuple[SchedulePick, ...]
    turns: Mapping[str, TargetTurn]


def choose(
    lines: Sequence[ModelQueue],
    targets: Sequence[TargetLoad],
    room: Mapping[str, int],
    *,
    now: float,
    turn_seconds: float,
    left: Mapping[str, int] = MappingProxyType({}),
) -> ScheduleChoice:
    """As many jobs as targets have permits for, lanes have ``room``, and limits have ``left``."""
    table = _Table(lines, targets, room, left, now, turn_seconds)
    # What needs no loading goes first, on whichever target: then nobody loads a model for a job
    # that another target could have begun at once.
    table.serve(table.without_loading)
    table.serve(table.whatever_is_next)
    return ScheduleChoice(tuple(table.picks), table.turns)


class _Table:
    """The state of one choice: what is left of lines, permits and room."""

    def __init__(
        self,
        lines: Sequence[ModelQueue],
        targets: Sequence[TargetLoad],
        room: Mapping[str, int],
        left: Mapping[str, int],
        now: float,
        turn_seconds: float,
    ) -> None:
        self._waiting = {line: list(line.since) for line in lines if line.since}
        self._targets = targets
        self._free = {target.name: target.free for target in targets}
        self._turns = {target.name: target.turn for target in targets}
        self._room = dict(room)
        self._left = dict(left)
        self._now = now
        self._turn_seconds = turn_seconds
        self._listed = frozenset[str]().union(*(target.models or () for target in targets))
        self._all_known = all(target.models is not None for target in targets)
        self._suiting = {
            target.name: [line for line in self._waiting if self._suits(target, line.model)]
            for target in targets
        }
        self.picks: list[SchedulePick] = []

    @property
    def turns(self) -> dict[str, TargetTurn]:
        """Of the targets that were given something."""
        return {pick.target: _bounded(self._turns[pick.target]) for pick in self.picks}

    def serve(self, next_line: Callable[[TargetLoad], ModelQueue | None]) -> None:
        """Give each target one job after the other, all of them by turns, until none wants more."""
        asking = list(self._targets)
        while asking:
            asking = [target for target in asking if self._give(target, next_line)]

    def _give(
        self, target: TargetLoad, next_line: Callable[[TargetLoad], ModelQueue | None]
    ) -> bool:
        line = next_line(target) if self._free[target.name] > 0 else None
        if line is None:
            return False
        self.picks.append(SchedulePick(line, target.name, self._has_to_load(target, line.model)))
        self._turns[target.name] = self._moved_on(target, line)
        self._free[target.name] -= 1
        self._room[line.lane] -= 1
        for limit in line.limits:
            self._left[limit] -= 1
        self._waiting[line].pop(0)
        return True

    # Which line is next on a target

    def without_loading(self, target: TargetLoad) -> ModelQueue | None:
        """Of the models that the target has loaded, while their turn lasts."""
        mine = self._may_have(target)
        favoured = self._favoured(target)
        if self._is_over(target, mine, favoured):
            return None
        loaded = favoured & target.resident
        return self._first_in_order(target, [line for line in mine if line.model in loaded])

    def whatever_is_next(self, target: TargetLoad) -> ModelQueue | None:
        """Of the models whose turn it is; else of the model that has waited longest for a turn."""
        mine = self._may_have(target)
        favoured = self._favoured(target)
        allowed = [line for line in mine if line.model in favoured]
        if not allowed and not self._has_lasted(target):
            allowed = [line for line in mine if line.model in target.resident]
        if not allowed or self._is_over(target, mine, favoured):
            others = [line for line in mine if line.model not in favoured]
            if not others:
                return None
            ended = self._turns[target.name].ended
            model = min(
                others, key=lambda it: max(self._oldest(it), ended.get(it.model, self._oldest(it)))
            ).model
            allowed = [line for line in others if line.model == model]
        return self._first_in_order(target, allowed)

    def _may_have(self, target: TargetLoad) -> list[ModelQueue]:
        return [
            line
            for line in self._suiting[target.name]
            if self._waiting[line]
            and self._room.get(line.lane, 0) > 0
            and not (line.limits and any(self._left[limit] <= 0 for limit in line.limits))
        ]

    def _suits(self, target: TargetLoad, model: str) -> bool:
        """Whether the target may be asked for a model: it lists it; or nobody does, and it is among
        those who may have it all the same."""
        if model in self._listed:
            return target.models is not None and model in target.models
        return target.models is None or self._all_known

    def _favoured(self, target: TargetLoad) -> frozenset[str]:
        """The models that need no new turn: those that were loaded when somebody looked.

        Unless the model of the turn is not among them. Then somebody looked before it was loaded,
        or it has been unloaded; what was seen is no reason to go from one to the other and back.
        """
        model = self._turns[target.name].model
        if model is None or model in target.resident:
            return target.resident
        return frozenset({model})

    def _is_over(
        self, target: TargetLoad, mine: Collection[ModelQueue], favoured: Collection[str]
    ) -> bool:
        """Whether the turn has lasted its time, and somebody waits for another one."""
        return self._has_lasted(target) and any(line.model not in favoured for line in mine)

    def _has_lasted(self, target: TargetLoad) -> bool:
        turn = self._turns[target.name]
        return turn.model is not None and self._now - turn.began >= self._turn_seconds

    def _first_in_order(self, target: TargetLoad, lines: Sequence[ModelQueue]) -> ModelQueue | None:
        urgent = [line for line in lines if line.is_urgent]
        others = [line for line in lines if not line.is_urgent]
        turn = self._turns[target.name]
        first = others if not urgent or turn.urgent_streak >= URGENT_STREAK_MAX else urgent
        return min(
            first or urgent,
            key=lambda it: (turn.served.get(_place(it), 0), self._oldest(it)),
            default=None,
        )

    def _oldest(self, line: ModelQueue) -> float:
        return self._waiting[line][0]

    # What follows from it

    def _has_to_load(self, target: TargetLoad, model: str) -> bool:
        if model not in target.resident:
            return True
        # Another one is being loaded, and may take this one's place.
        turn = self._turns[target.name].model
        return turn != model and turn in target.at_work_on and turn not in target.resident

    def _moved_on(self, target: TargetLoad, line: ModelQueue) -> TargetTurn:
        turn = self._turns[target.name]
        number = turn.picks + 1
        served = {**turn.served, _place(line): number}
        streak = turn.urgent_streak + 1 if line.is_urgent else 0
        if line.model != turn.model and line.model not in self._favoured(target):
            ended = turn.ended if turn.model is None else {**turn.ended, turn.model: self._now}
            # Going over to what is loaded already is no new turn: others wait no longer for that.
            stays = line.model in target.resident and not self._has_lasted(target)
            turn = replace(
                turn, model=line.model, began=turn.began if stays else self._now, ended=ended
            )
        elif turn.model is None:
            turn = replace(turn, model=line.model, began=self._now)
        return replace(turn, urgent_streak=streak, picks=number, served=served)


def _place(line: ModelQueue) -> str:
    """An organisation's place among the urgent lines, or among the others."""
    return f"{'urgent' if line.is_urgent else 'other'} {line.org}"


def _bounded(turn: TargetTurn) -> TargetTurn:
    return replace(turn, ended=_latest(turn.ended), served=_latest(turn.served))


def _latest(moments: Mapping[str, _Moment]) -> Mapping[str, _Moment]:
    """What is forgotten counts as longest ago, which it is."""
    if len(moments) <= REMEMBERED_MAX:
        return moments
    kept = sorted(moments, key=lambda name: moments[name])[-REMEMBERED_MAX:]
    return {name: moments[name] for name in kept}
