"""Context variables for the current request, job and trace; every log line carries them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final
from uuid import UUID

request_id: Final[ContextVar[str | None]] = ContextVar("coatcheck_request_id", default=None)

job_id: Final[ContextVar[UUID | None]] = ContextVar("coatcheck_job_id", default=None)
"""Kept as a UUID: a job that logs nothing never pays for formatting its id."""


@contextmanager
def about_job(job: UUID, made_by: str | None) -> Iterator[None]:
    """Attach a job, and the request that submitted it, to all lines logged inside."""
    job_token, request_token = job_id.set(job), request_id.set(made_by)
    try:
        yield
    finally:
        job_id.reset(job_token)
        request_id.reset(request_token)


traceparent: Final[ContextVar[str | None]] = ContextVar("coatcheck_traceparent", default=None)
"""Set while the running code is part of a trace (``tracing.py``)."""
