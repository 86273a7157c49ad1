"""Chooses which waiting llm job runs on which target next. Pure: the caller passes the times.

Loading a model takes long. So a target serves the models it has loaded for a turn, and changes to
another model when the turn is over and jobs wait for that one. Within a turn urgent jobs go first,
up to a bound, and organisations take turns. docs/adr/0024 has the reasons.

Waiting is bounded. A model with waiting jobs gets its turn on a target after at most one turn of
each other model with waiting jobs there. Then each organisation gets a job after at most one job of
each other organisation, in its lane's share.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, TypeVar

from coatcheck.domain.claim_choice import Limit
from coatcheck.domain.lanes import Lane

URGENT_STREAK_MAX: Final = 4
"""How many urgent jobs run in a row while others wait."""
REMEMBERED_MAX: Final = 200
"""For how many models, and for how many organisations, a target remembers the last turn."""

_URGENT: Final = Lane.URGENT.value

_Moment = TypeVar("_Moment", int, float)


@dataclass(frozen=True, slots=True, eq=False)
class ModelQueue:
    """The jobs of one organisation for one model, in one lane, oldest first.

    ``since`` has the times since which the oldest jobs wait. ``limits`` names the concurrency
    limits that are set on its organisation, its model or its endpoint.
    """

    lane: str
    endpoint: str
    org: str
    model: str
    since: Sequence[float]
    limits: tuple[Limit, ...] = ()

    @property
    def is_urgent(self) -> bool:
        return self.lane == _URGENT


@dataclass(frozen=True, slots=True)
class TargetTurn:
    """The scheduling history of a target.

    ``model`` has the turn, which ``began`` with the last change that loaded a model. ``ended`` says
    when the turns of other models ended. ``picks`` counts the jobs picked; ``served`` has, for the
    urgent and the other queues of each organisation, the number of its last pick.
    """

    model: str | None = None
    began: float = 0.0
    urgent_streak: int = 0
    picks: int = 0
    ended: Mapping[str, float] = field(default_factory=dict)
    served: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TargetLoad:
    """The current load of a target: ``free`` permits, the models it lists (None if unknown), the
    models it has loaded, the models it is running jobs of, and its turn."""

    name: str
    free: int
    models: frozenset[str] | None
    resident: frozenset[str]
    at_work_on: frozenset[str] = frozenset()
    turn: TargetTurn = TargetTurn()


@dataclass(frozen=True, slots=True)
class SchedulePick:
    """The next job of a queue runs on a target. ``loading``: the target loads the model first."""

    queue: ModelQueue
    target: str
    loading: bool


@dataclass(frozen=True, slots=True)
class ScheduleChoice:
    """The picks in order, and the new turns of the targets that got a job."""

    picks: tuple[SchedulePick, ...]
    turns: Mapping[str, TargetTurn]


def choose(
    queues: Sequence[ModelQueue],
    targets: Sequence[TargetLoad],
    room: Mapping[str, int],
    *,
    now: float,
    turn_seconds: float,
    left: Mapping[Limit, int] = MappingProxyType({}),
) -> ScheduleChoice:
    """Pick as many jobs as the targets' permits, the lanes' ``room`` and the limits' rest
    (``left``) allow."""
    schedule = _Schedule(queues, targets, room, left, now, turn_seconds)
    # Jobs that need no loading go first, on any target. Otherwise a target would load a model for a
    # job that another target could have started at once.
    schedule.serve(schedule.without_loading)
    schedule.serve(schedule.by_turn)
    return ScheduleChoice(tuple(schedule.picks), schedule.turns)


class _Schedule:
    """The state of one choice: the remaining jobs, permits and room."""

    def __init__(
        self,
        queues: Sequence[ModelQueue],
        targets: Sequence[TargetLoad],
        room: Mapping[str, int],
        left: Mapping[Limit, int],
        now: float,
        turn_seconds: float,
    ) -> None:
        self._waiting = {queue: list(queue.since) for queue in queues if queue.since}
        self._targets = targets
        self._free = {target.name: target.free for target in targets}
        self._turns = {target.name: target.turn for target in targets}
        self._room = dict(room)
        self._left = dict(left)
        self._now = now
        self._turn_seconds = turn_seconds
        self._listed = frozenset[str]().union(*(target.models or () for target in targets))
        self._all_known = all(target.models is not None for target in targets)
        self._queues_by_target = {
            target.name: [queue for queue in self._waiting if self._can_serve(target, queue.model)]
            for target in targets
        }
        self.picks: list[SchedulePick] = []

    @property
    def turns(self) -> dict[str, TargetTurn]:
        """The turns of the targets that got a job."""
        return {pick.target: _bounded(self._turns[pick.target]) for pick in self.picks}

    def serve(self, next_queue: Callable[[TargetLoad], ModelQueue | None]) -> None:
        """Assign one job to each target in rotation, until no target can take another."""
        unserved = list(self._targets)
        while unserved:
            unserved = [target for target in unserved if self._assign_next(target, next_queue)]

    def _assign_next(
        self, target: TargetLoad, next_queue: Callable[[TargetLoad], ModelQueue | None]
    ) -> bool:
        queue = next_queue(target) if self._free[target.name] > 0 else None
        if queue is None:
            return False
        self.picks.append(SchedulePick(queue, target.name, self._must_load(target, queue.model)))
        self._turns[target.name] = self._advance_turn(target, queue)
        self._free[target.name] -= 1
        self._room[queue.lane] -= 1
        for limit in queue.limits:
            self._left[limit] -= 1
        self._waiting[queue].pop(0)
        return True

    # The next queue of a target

    def without_loading(self, target: TargetLoad) -> ModelQueue | None:
        """The next queue among the models that the target has loaded, while their turn lasts."""
        eligible = self._eligible(target)
        favoured = self._favoured(target)
        if self._turn_is_over(target, eligible, favoured):
            return None
        loaded = favoured & target.resident
        return self._first_in_order(target, [queue for queue in eligible if queue.model in loaded])

    def by_turn(self, target: TargetLoad) -> ModelQueue | None:
        """The next queue of the models whose turn it is, or of the one that waited longest."""
        eligible = self._eligible(target)
        favoured = self._favoured(target)
        allowed = [queue for queue in eligible if queue.model in favoured]
        if not allowed and not self._turn_time_is_up(target):
            allowed = [queue for queue in eligible if queue.model in target.resident]
        if not allowed or self._turn_is_over(target, eligible, favoured):
            others = [queue for queue in eligible if queue.model not in favoured]
            if not others:
                return None
            ended = self._turns[target.name].ended
            model = min(
                others, key=lambda it: max(self._oldest(it), ended.get(it.model, self._oldest(it)))
            ).model
            allowed = [queue for queue in others if queue.model == model]
        return self._first_in_order(target, allowed)

    def _eligible(self, target: TargetLoad) -> list[ModelQueue]:
        return [
            queue
            for queue in self._queues_by_target[target.name]
            if self._waiting[queue]
            and self._room.get(queue.lane, 0) > 0
            and not (queue.limits and any(self._left[limit] <= 0 for limit in queue.limits))
        ]

    def _can_serve(self, target: TargetLoad, model: str) -> bool:
        """Whether the target may be asked for a model. It lists the model; or no target does, and
        this target's list is unknown, or the lists of all targets are known."""
        if model in self._listed:
            return target.models is not None and model in target.models
        return target.models is None or self._all_known

    def _favoured(self, target: TargetLoad) -> frozenset[str]:
        """The models that need no new turn: those that were loaded at the last look.

        If the turn's model is not among them, it is the only one. Either the look came before it
        was loaded, or it has been unloaded since; switching to what the look saw would only make
        the target load one model after the other.
        """
        model = self._turns[target.name].model
        if model is None or model in target.resident:
            return target.resident
        return frozenset({model})

    def _turn_is_over(
        self, target: TargetLoad, eligible: Collection[ModelQueue], favoured: Collection[str]
    ) -> bool:
        """Whether the turn's time is up, and jobs wait for another model."""
        return self._turn_time_is_up(target) and any(
            queue.model not in favoured for queue in eligible
        )

    def _turn_time_is_up(self, target: TargetLoad) -> bool:
        turn = self._turns[target.name]
        return turn.model is not None and self._now - turn.began >= self._turn_seconds

    def _first_in_order(
        self, target: TargetLoad, queues: Sequence[ModelQueue]
    ) -> ModelQueue | None:
        urgent = [queue for queue in queues if queue.is_urgent]
        others = [queue for queue in queues if not queue.is_urgent]
        turn = self._turns[target.name]
        first = others if not urgent or turn.urgent_streak >= URGENT_STREAK_MAX else urgent
        return min(
            first or urgent,
            key=lambda it: (turn.served.get(_served_key(it), 0), self._oldest(it)),
            default=None,
        )

    def _oldest(self, queue: ModelQueue) -> float:
        return self._waiting[queue][0]

    # The effects of a pick

    def _must_load(self, target: TargetLoad, model: str) -> bool:
        if model not in target.resident:
            return True
        # Another model is being loaded, and may evict this one.
        turn = self._turns[target.name].model
        return turn != model and turn in target.at_work_on and turn not in target.resident

    def _advance_turn(self, target: TargetLoad, queue: ModelQueue) -> TargetTurn:
        turn = self._turns[target.name]
        number = turn.picks + 1
        served = {**turn.served, _served_key(queue): number}
        streak = turn.urgent_streak + 1 if queue.is_urgent else 0
        if queue.model != turn.model and queue.model not in self._favoured(target):
            ended = turn.ended if turn.model is None else {**turn.ended, turn.model: self._now}
            # A change to a loaded model starts no new turn, so that others wait no longer.
            stays = queue.model in target.resident and not self._turn_time_is_up(target)
            turn = replace(
                turn, model=queue.model, began=turn.began if stays else self._now, ended=ended
            )
        elif turn.model is None:
            turn = replace(turn, model=queue.model, began=self._now)
        return replace(turn, urgent_streak=streak, picks=number, served=served)


def _served_key(queue: ModelQueue) -> str:
    """The key of an organisation's urgent queues, or of its other queues, in ``served``."""
    return f"{'urgent' if queue.is_urgent else 'other'} {queue.org}"


def _bounded(turn: TargetTurn) -> TargetTurn:
    return replace(turn, ended=_latest(turn.ended), served=_latest(turn.served))


def _latest(moments: Mapping[str, _Moment]) -> Mapping[str, _Moment]:
    """The latest entries. A dropped one counts as the longest ago, which it is."""
    if len(moments) <= REMEMBERED_MAX:
        return moments
    kept = sorted(moments, key=lambda name: moments[name])[-REMEMBERED_MAX:]
    return {name: moments[name] for name in kept}
