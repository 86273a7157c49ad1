"""The log line and metric for a job that failed with no attempt left.

Callers see an event of the job, stored with the failure (``reports/note_attempts``). This module
is for operators.
"""

from __future__ import annotations

import logging
from uuid import UUID

from coatcheck.domain.ids import to_text
from coatcheck.telemetry import metrics

_log = logging.getLogger(__name__)


def sound(job_id: UUID, endpoint: str, request_id: str | None) -> None:
    """Report that a job has failed for good, after its last attempt. ``request_id`` is the request
    that submitted it."""
    _log.warning(
        "a job failed with no attempt left",
        extra={"job_id": to_text(job_id), "endpoint": endpoint, "request_id": request_id},
    )
    metrics.record_alert(endpoint)
