"""Jobs as the people who operate them see them, whatever product they belong to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from coatcheck.domain.ids import to_text
from coatcheck.domain.job import JobView
from coatcheck.domain.lanes import Lane
from coatcheck.domain.states import TERMINAL, State

RESULT_SHOWN_BYTES_MAX: Final = 64 * 1024
"""A longer result is only shown by its product."""

LIVE: Final = tuple(state for state in State if state not in TERMINAL)
ENDED: Final = tuple(state for state in State if state in TERMINAL)
UNSUCCESSFUL: Final = (State.FAILED, State.CANCELLED)

_TRACE_ID: Final = 1
"""The part of a traceparent that is the trace's id."""


@dataclass(frozen=True, slots=True)
class Task:
    """The place of a job in a run. ``group`` is the run's; None once it is being deleted."""

    run: UUID
    index: int
    group: UUID | None = None
    service: str | None = None
    endpoint: str | None = None


@dataclass(frozen=True, slots=True)
class OrgJob:
    """A job, whether its input is kept, and its retries.

    ``view.result`` is set if it was requested and is short.
    """

    view: JobView
    task: Task | None
    input_kept: bool
    retry_of: UUID | None
    retried_as: UUID | None
    traceparent: str | None

    @property
    def uuid(self) -> UUID:
        return self.view.uuid

    @property
    def id(self) -> str:
        return to_text(self.view.uuid)

    @property
    def trace_id(self) -> str | None:
        """The trace that its submission belongs to, if it was traced."""
        return None if self.traceparent is None else self.traceparent.split("-")[_TRACE_ID]

    @property
    def service(self) -> str:
        """The first part of the name of its endpoint."""
        return self.view.endpoint.partition(".")[0]

    @property
    def is_unsuccessful(self) -> bool:
        return self.view.state in UNSUCCESSFUL


@dataclass(frozen=True, slots=True, kw_only=True)
class OrgJobFilter:
    """Selects jobs of an organisation. A field that is None does not narrow the selection.

    ``reader`` selects the jobs of one owner, and those that anyone may see. ``retryable`` selects
    jobs that can be retried and were not retried yet.
    """

    org: str
    states: Sequence[State] | None = None
    lane: Lane | None = None
    services: Sequence[str] | None = None
    other_services_than: Sequence[str] | None = None
    endpoint: str | None = None
    reader: str | None = None
    owner: str | None = None
    error_code: str | None = None
    request_id: str | None = None
    retryable: bool = False

    def arguments(self) -> dict[str, Any]:
        """The parameters of ``org_jobs/filter``, besides those of ``PageQuery``."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values["states"] = None if self.states is None else [each.value for each in self.states]
        values["lane"] = None if self.lane is None else self.lane.value
        return values


@dataclass(frozen=True, slots=True)
class OrgJobPage:
    """Jobs, newest first. ``following`` is where the next page begins; None on the last page. A
    page with fewer jobs than requested, or with none, may still have a next page."""

    items: Sequence[OrgJob]
    following: UUID | None


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A log line, an alert, or the outcome of an attempt."""

    seq: int
    kind: str
    data: dict[str, Any]
    at: datetime


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt that did not complete. ``outcome`` is failed, crashed, interrupted,
    target_unreachable or cancelled; ``state`` is where it left the job."""

    attempt: int
    outcome: str
    state: str
    code: str | None
    message: str | None
    dispatched_at: datetime | None
    started_at: datetime | None
    ended_at: datetime
    next_run_at: datetime | None
