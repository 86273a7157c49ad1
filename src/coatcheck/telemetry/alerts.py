"""Tells the operators that a job has failed with no attempt left.

Its callers are told by an event of the job, stored with the failure (``events/alert.sql``); this
is the log line and the count.
"""

from __future__ import annotations

import logging
from uuid import UUID

from coatcheck.domain.ids import to_text
from coatcheck.telemetry import metrics

_log = logging.getLogger(__name__)


def sound(job_id: UUID, endpoint: str, request_id: str | None) -> None:
    """A job has failed for good, after every attempt it had. ``request_id`` is of the request that
    made it."""
    _log.warning(
        "a job failed with no attempt left",
        extra={"job_id": to_text(job_id), "endpoint": endpoint, "request_id": request_id},
    )
    metrics.record_alert(endpoint)
