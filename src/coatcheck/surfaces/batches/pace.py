"""How long to stay away before asking for a job again: from how fast its tasks end."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Final

from coatcheck.control.pace import RETRY_AFTER_SECONDS_MAX, RETRY_AFTER_SECONDS_MIN
from coatcheck.domain.batches import BatchView

_UNKNOWN_SECONDS: Final = 2
_SHARE: Final = 0.5
"""Asking at half the time that is left finds the end sooner, at the price of a few more asks."""


def retry_after(view: BatchView, now: datetime) -> int:
    """Whole seconds, as the header wants them."""
    run = view.current
    tasks = run.counts
    ended = tasks.succeeded + tasks.failed + tasks.cancelled
    age = (now - run.created_at).total_seconds()
    if not ended or age <= 0:
        return _UNKNOWN_SECONDS
    left = (tasks.total - ended) * age / ended
    seconds = math.ceil(left * _SHARE)
    return max(RETRY_AFTER_SECONDS_MIN, min(seconds, RETRY_AFTER_SECONDS_MAX))
