"""The bodies of the gateway's HTTP API, and its statuses for the engine's states."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal

import msgspec

from coatcheck.domain.job import JobFailure
from coatcheck.domain.states import State

STATUSES: Final = {state: state.value for state in State} | {State.FINALIZING: "processing"}
STATES: Final = {
    status: [state for state, word in STATUSES.items() if word == status]
    for status in dict.fromkeys(STATUSES.values())
}
"""The engine's states behind each status."""

ExecutionMode = Literal["invocation", "persistent"]


class GatewayTicket(msgspec.Struct, frozen=True):
    """A submitted job. Read its result from ``poll_url``."""

    job_id: str
    status: str
    poll_url: str
    events_url: str
    cancel_url: str
    artifacts_url: str
    terminal: bool


class LastError(JobFailure, frozen=True):
    """Why the last attempt failed. ``cause`` is its code, also after the last retry."""


class GatewayProgress(msgspec.Struct, frozen=True):
    """A job's reported progress: a fraction from 0 to 1, and a note."""

    fraction: float
    note: str | None


class GatewayJob(msgspec.Struct, frozen=True):
    """A job. A completed job has its ``result_summary``; ``terminal`` says that the job has ended.

    A page leaves results out, and an event leaves out a long result: ``result_omitted`` is then
    true, and ``result_url`` returns the job with its whole result.

    ``execution_mode`` is ``persistent`` if a remote does the work; ``execution_id`` is the remote's
    id of it, once the remote has started it.
    """

    id: str
    org_id: str
    workspace_id: str
    service_id: str
    version_id: str
    endpoint_id: str
    endpoint_key: str
    execution_mode: ExecutionMode
    lane: str
    status: str
    idempotency_key: str | None
    execution_id: str | None
    attempt_count: int
    result_summary: msgspec.Raw
    last_error: LastError | None
    pre_dispatch_age_seconds: float
    stalled: bool
    stalled_reason: str | None
    started_at: datetime | None
    completed_at: datetime | None
    expires_at: datetime | None
    created_at: datetime
    updated_at: datetime
    terminal: bool
    progress: GatewayProgress | None
    result_omitted: bool
    result_url: str | None


class GatewayJobPage(msgspec.Struct, frozen=True):
    """Jobs, newest first, without their results.

    ``total`` counts to 10,000; ``total_is_exact`` says whether there are more. ``next`` is the
    ``cursor`` of the page after this one.
    """

    items: list[GatewayJob]
    total: int
    total_is_exact: bool
    next: str | None


class GatewayJobStatuses(msgspec.Struct, frozen=True):
    """The requested jobs, in the requested order, and the ids that were not found.

    A result longer than 64 KiB is left out; for more than 64 jobs, also a result that is longer
    than 4 MiB divided by their number.
    """

    items: list[GatewayJob]
    not_found: list[str]
