"""Estimates ``Retry-After``: how long a caller should wait before it asks for a job again.

Most estimates come from the recent durations of similar jobs, in memory. A job that has waited
longer than usual is looked up in the queue, one job per queue key every few seconds: its position
says more than the durations of other jobs.
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
"""The estimate if no similar job has ended yet, unless a product has another."""
_WEIGHT: Final = 0.2
"""The weight of the newest job in the running mean."""
_KINDS_MAX: Final = 10_000
_LATE_SECONDS_MIN: Final = 3.0
"""A job that has waited for less is never looked up in the queue."""
_FORECAST_SECONDS: Final = 3.0
"""How long a forecast is used."""

Forecast = Callable[[JobView], Awaitable[Eta | None]]
"""Forecasts when a queued job will start and end, if that is possible."""


@dataclass(slots=True)
class _Mean:
    waited: float
    ran: float
    newest: datetime


class _CachedForecast(NamedTuple):
    at: float
    seconds: float | None


def kind_of(org: str, endpoint: str, queue_key: str) -> str:
    """Groups jobs of similar duration: by their endpoint.

    All HTTP upstreams of all organisations share one endpoint, so they are grouped by their
    organisation and queue key.
    """
    return f"{org}/{queue_key}" if endpoint == UPSTREAM_ENDPOINT else endpoint


class RetryAfterEstimator:
    """Running means by kind and lane, learned from ended jobs that were shown; and forecasts by
    queue key, for jobs that take longer."""

    def __init__(self, forecast: Forecast | None = None) -> None:
        self._forecast = forecast
        self._means: OrderedDict[tuple[str, Lane], _Mean] = OrderedDict()
        self._forecasts: OrderedDict[tuple[str, ...], _CachedForecast] = OrderedDict()

    def learn(self, view: JobView) -> None:
        """Record a job that ended. Each counts once, however often it is shown."""
        if view.finished_at is None or view.started_at is None:
            return
        # A requested delay says nothing about the queue.
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
        forecast_seconds: float | None = None,
        unknown: int = UNKNOWN_SECONDS,
    ) -> int:
        """The estimate in whole seconds. Without a view: for a job that was just created.

        ``forecast_seconds`` is the forecast of the seconds until the job ends, if there is one.
        ``unknown`` is the estimate while no job of the kind has ended.
        """
        if view is not None and not view.state.held:
            due = (view.run_at - view.read_at).total_seconds()
            if due > 0:
                return retry_when_due(due)
        if forecast_seconds is not None:
            return retry_after(forecast_seconds)
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
                # It is late: the longer it has taken, the longer it may still take.
                left = age / 2
        return retry_after(left)

    async def forecast(self, view: JobView) -> float | None:
        """The forecast of the seconds until a queued job ends that has waited longer than usual;
        None for any other job, and if there is no forecast."""
        if self._forecast is None or view.state is not State.QUEUED or not self._is_late(view):
            return None
        queue = (view.org, view.lane, view.endpoint, view.queue_key)
        now = time.monotonic()
        known = self._forecasts.get(queue)
        if known is None or now - known.at >= _FORECAST_SECONDS:
            # Stored before the forecast is made, so that concurrent callers do not make it, too.
            self._forecasts[queue] = _CachedForecast(now, None if known is None else known.seconds)
            self._forecasts.move_to_end(queue)
            if len(self._forecasts) > _KINDS_MAX:
                self._forecasts.popitem(last=False)
            try:
                eta = await self._forecast(view)
            except (DatabaseUnavailable, OutcomeUnknown):
                return None  # a response is possible without it
            known = self._forecasts[queue] = _CachedForecast(
                now, None if eta is None else eta.end_p50
            )
        return known.seconds

    def _is_late(self, view: JobView) -> bool:
        mean = self._means.get((kind_of(view.org, view.endpoint, view.queue_key), view.lane))
        usual = 0.0 if mean is None else mean.waited
        waited = (view.read_at - max(view.run_at, view.created_at)).total_seconds()
        return waited > max(_LATE_SECONDS_MIN, usual)
