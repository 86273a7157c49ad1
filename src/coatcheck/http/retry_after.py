"""How long to stay away before asking again: from what jobs of the kind have taken of late.

For most asks that is known here. A job that has waited longer than others did is looked up in the
queue, one of each line in a few seconds: where it stands says more than what others took.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from coatcheck.domain.catalogue import UPSTREAM_ENDPOINT
from coatcheck.domain.errors import DatabaseUnavailable, OutcomeUnknown
from coatcheck.domain.explanation import Eta, retry_after, retry_when_due
from coatcheck.domain.job import JobView
from coatcheck.domain.lanes import Lane
from coatcheck.domain.states import State

UNKNOWN_SECONDS: Final = 2
"""What to say of jobs of which nothing is known, unless their surface says otherwise."""
_WEIGHT: Final = 0.2
"""Of the newest job in the running mean."""
_KINDS_MAX: Final = 10_000
_LATE_SECONDS_MIN: Final = 3.0
"""Nobody's place is looked up before."""
_FORESEEN_SECONDS: Final = 3.0
"""How long the forecast for a line is good for."""

Forecast = Callable[[JobView], Awaitable[Eta | None]]
"""When a queued job may start and end, as far as it can be told."""


@dataclass(slots=True)
class _Mean:
    waited: float
    ran: float
    newest: datetime


class _Foreseen(NamedTuple):
    at: float
    seconds: float | None


def kind_of(org: str, endpoint: str, queue_key: str) -> str:
    """What tells jobs that take alike from others: their endpoint.

    Http upstreams, of all organisations, share one; their queue keys tell them apart.
    """
    return f"{org}/{queue_key}" if endpoint == UPSTREAM_ENDPOINT else endpoint


class RetryAfterEstimator:
    """Running means by kind and lane, learned from the ended jobs that were shown; and forecasts by
    line, for the jobs that take longer."""

    def __init__(self, forecast: Forecast | None = None) -> None:
        self._forecast = forecast
        self._means: OrderedDict[tuple[str, Lane], _Mean] = OrderedDict()
        self._foreseen: OrderedDict[tuple[str, ...], _Foreseen] = OrderedDict()

    def learn(self, view: JobView) -> None:
        """Take note of a job that ended; each counts once, however often it is shown."""
        if view.finished_at is None or view.started_at is None:
            return
        # A delay that was asked for says nothing about the queue.
        due = min(max(view.created_at, view.run_at), view.started_at)
        waited = max(0.0, (view.started_at - due).total_seconds())
        ran = max(0.0, (view.finished_at - view.started_at).total_seconds())
        kind = (kind_of(view.org, view.endpoint, view.queue_key), view.lane)
        mean = self._means.get(kind)
        if mean is None:
            if len(self._means) >= _KINDS_MAX:
                self._means.popitem(last=False)
            self._means[kind] = _Mean(waited, ran, view.finished_at)
        elif view.finished_at > mean.newest:
            mean.waited += _WEIGHT * (waited - mean.waited)
            mean.ran += _WEIGHT * (ran - mean.ran)
            mean.newest = view.finished_at

    def retry_after(
        self,
        kind: str,
        lane: Lane,
        view: JobView | None = None,
        foreseen: float | None = None,
        unknown: int = UNKNOWN_SECONDS,
    ) -> int:
        """Seconds, whole ones as the header wants them. Without a view: a job just created.

        ``foreseen`` is in how many seconds the job is expected to end, if somebody has looked;
        ``unknown`` what to say while no job of the kind has ended.
        """
        if view is not None and not view.state.held:
            due = (view.run_at - view.read_at).total_seconds()
            if due > 0:
                return retry_when_due(due)
        if foreseen is not None:
            return retry_after(foreseen)
        mean = self._means.get((kind, lane))
        if mean is None:
            return unknown
        left = mean.waited + mean.ran
        if view is not None:
            age = (view.read_at - view.created_at).total_seconds()
            if view.started_at is not None:
                left = mean.ran - (view.read_at - view.started_at).total_seconds()
            else:
                left -= age
            if left <= 0:
                # Later than usual: the longer it has taken, the longer it may still take.
                left = age / 2
        return retry_after(left)

    async def foresee(self, view: JobView) -> float | None:
        """In how many seconds a job ends that has waited longer than others did; None for any
        other, and if nobody knows."""
        if self._forecast is None or view.state is not State.QUEUED or not self._is_late(view):
            return None
        line = (view.org, view.lane, view.endpoint, view.queue_key)
        now = time.monotonic()
        known = self._foreseen.get(line)
        if known is None or now - known.at >= _FORESEEN_SECONDS:
            # Noted before it is known: others who ask meanwhile need not.
            self._foreseen[line] = _Foreseen(now, None if known is None else known.seconds)
            self._foreseen.move_to_end(line)
            if len(self._foreseen) > _KINDS_MAX:
                self._foreseen.popitem(last=False)
            try:
                eta = await self._forecast(view)
            except (DatabaseUnavailable, OutcomeUnknown):
                return None  # the answer does not depend on it
            known = self._foreseen[line] = _Foreseen(now, None if eta is None else eta.end_p50)
        return known.seconds

    def _is_late(self, view: JobView) -> bool:
        mean = self._means.get((kind_of(view.org, view.endpoint, view.queue_key), view.lane))
        usual = 0.0 if mean is None else mean.waited
        waited = (view.read_at - max(view.run_at, view.created_at)).total_seconds()
        return waited > max(_LATE_SECONDS_MIN, usual)
