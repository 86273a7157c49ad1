"""The codes with which jobs fail, declared once: those of the core here, others beside their code.

``docs/reference/failures.md`` lists them all: ``make reference`` writes it from the declarations.
Handlers may fail with codes of their own.
"""

from __future__ import annotations

from enum import StrEnum


class FailureCode(StrEnum):
    """The base of all declared codes. Below each member: what happened."""


class CoreFailure(FailureCode):
    """Any job"""

    MAX_RETRIES_EXHAUSTED = "max_retries_exhausted"
    """The last retry failed. `cause` is the code of that attempt. A task of a batch has that code
    instead."""
    JOB_FAILED = "job_failed"
    """The handler failed the job, and gave no code."""
    RETRY_LATER = "retry_later"
    """The handler asked for a retry, and gave no code."""
    HANDLER_ERROR = "handler_error"
    """The handler raised an exception, or stopped although nobody had cancelled the job."""
    INVALID_INPUT = "invalid_input"
    """The input does not fit the handler."""
    RESULT_NOT_JSON = "result_not_json"
    """The result cannot be encoded as JSON."""
    RESULT_TOO_LARGE = "result_too_large"
    """The result is larger than a result may be."""
    REPORTS_NOT_AWAITED = "reports_not_awaited"
    """An async handler reported faster than its reports were stored, and did not await them."""
    REPORT_NOT_STORED = "report_not_stored"
    """An attached file could not be read, or the database refused a report."""
    TIMED_OUT = "timed_out"
    """The attempt ran for longer than the endpoint's timeout."""
    MEMORY_LIMIT = "memory_limit"
    """The process of an isolated handler reached its memory limit."""
    CPU_LIMIT = "cpu_limit"
    """The process of an isolated handler reached its limit of CPU time."""
    CHILD_KILLED = "child_killed"
    """The process of an isolated handler ended before it returned a result."""
    CHILD_NOT_STARTED = "child_not_started"
    """The process of an isolated handler could not be started."""
    HANDLER_NOT_IMPORTABLE = "handler_not_importable"
    """The process of an isolated handler could not import it."""
    TARGET_UNREACHABLE = "target_unreachable"
    """What the job needs cannot be reached. The job waits, and spends no attempt."""
    WORKER_LOST = "worker_lost"
    """The job's worker died or fell silent."""
    START_DEADLINE_PASSED = "start_deadline_passed"
    """The job did not start by its start deadline."""
    CANCELLED = "cancelled"
    """Somebody cancelled the job, or its batch."""
