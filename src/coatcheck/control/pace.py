"""How long to stay away before asking again: from what jobs of the kind have taken of late."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from coatcheck.domain.catalogue import UPSTREAM_ENDPOINT
from coatcheck.domain.job import JobView
from coatcheck.domain.lanes import Lane

RETRY_AFTER_SECONDS_MIN: Final = 1
RETRY_AFTER_SECONDS_MAX: Final = 60
_UNKNOWN_SECONDS: Final = 2
_WEIGHT: Final = 0.2
"""Of the newest job in the running mean."""
_SHARE: Final = 0.5
"""Asking at half the time that is left finds the end sooner, at the price of a few more asks."""
_KINDS_MAX: Final = 10_000


@dataclass(slots=True)
class _Mean:
    waited: float
    ran: float
    newest: datetime


def kind_of(org: str, endpoint: str, flow: str) -> str:
    """What tells jobs that take alike from others: their endpoint.

    Http upstreams, of all organisations, share one; their flows tell them apart.
    """
    return f"{org}/{flow}" if endpoint == UPSTREAM_ENDPOINT else endpoint


class Pace:
    """Running means by kind and lane, learned from the ended jobs that were shown."""

    def __init__(self) -> None:
        self._means: OrderedDict[tuple[str, Lane], _Mean] = OrderedDict()

    def learn(self, view: JobView) -> None:
        """Take note of a job that ended; each counts once, however often it is shown."""
        if view.finished_at is None or view.started_at is None:
            return
        waited = max(0.0, (view.started_at - view.created_at).total_seconds())
        ran = max(0.0, (view.finished_at - view.started_at).total_seconds())
        kind = (kind_of(view.org, view.endpoint, view.flow), view.lane)
        mean = self._means.get(kind)
        if mean is None:
            if len(self._means) >= _KINDS_MAX:
                self._means.popitem(last=False)
            self._means[kind] = _Mean(waited, ran, view.finished_at)
        elif view.finished_at > mean.newest:
            mean.waited += _WEIGHT * (waited - mean.waited)
            mean.ran += _WEIGHT * (ran - mean.ran)
            mean.newest = view.finished_at

    def retry_after(self, kind: str, lane: Lane, view: JobView | None = None) -> int:
        """Seconds, whole ones as the header wants them. Without a view: a job just created."""
        mean = self._means.get((kind, lane))
        if mean is None:
            return _UNKNOWN_SECONDS
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
            due = (view.run_at - view.read_at).total_seconds()
            left = max(left, due / _SHARE)
        seconds = math.ceil(left * _SHARE)
        return max(RETRY_AFTER_SECONDS_MIN, min(seconds, RETRY_AFTER_SECONDS_MAX))
