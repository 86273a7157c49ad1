"""Which request, job and trace the running code works for; every log line carries them."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final
from uuid import UUID

request_id: Final[ContextVar[str | None]] = ContextVar("coatcheck_request_id", default=None)

job_id: Final[ContextVar[UUID | None]] = ContextVar("coatcheck_job_id", default=None)
"""Kept as the UUID: a job that logs nothing never pays for its id's spelling."""

traceparent: Final[ContextVar[str | None]] = ContextVar("coatcheck_traceparent", default=None)
"""Set while the running code is part of a trace (``tracing.py``)."""
