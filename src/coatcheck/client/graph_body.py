"""Data types for graphs of code."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from coatcheck.client.job_body import JobError, Progress

GraphOperation = Literal["dependency", "call", "domain", "parse", "supermodel"]


class GraphJob(msgspec.Struct, frozen=True):
    """The state of an archive's analysis when the server was last asked.

    ``status`` is ``pending``, ``processing``, ``completed`` or ``failed``. ``result`` is the graph
    after completion; ``error`` says why it failed.
    """

    id: str
    status: str
    terminal: bool
    operation: str | None = None
    progress: Progress | None = None
    result: Any = None
    error: JobError | None = None


class GraphEnvelope(msgspec.Struct, frozen=True, rename="camel"):
    """The server's answer."""

    status: str
    job_id: str
    terminal: bool = False
    operation: str | None = None
    progress: Progress | None = None
    result: Any = None
    error: str | None = None
    error_code: str | None = None

    def job(self) -> GraphJob:
        """The same as the client's type."""
        error = None
        if self.error is not None:
            error = JobError(self.error_code or "job_failed", self.error)
        return GraphJob(
            self.job_id,
            self.status,
            self.terminal or self.status in ("completed", "failed"),
            self.operation,
            self.progress,
            self.result,
            error,
        )
