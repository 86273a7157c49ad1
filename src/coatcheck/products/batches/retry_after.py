"""How long to stay away before asking for a job again: from how fast its tasks end."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from coatcheck.domain import forecast
from coatcheck.products.batches.model import BatchView

_UNKNOWN_SECONDS: Final = 2


def retry_after(view: BatchView, now: datetime) -> int:
    """Whole seconds, as the header wants them."""
    run = view.current
    tasks = run.counts
    ended = tasks.succeeded + tasks.failed + tasks.cancelled
    age = (now - run.created_at).total_seconds()
    if not ended or age <= 0:
        return _UNKNOWN_SECONDS
    return forecast.retry_after((tasks.total - ended) * age / ended)
