"""Every error that Coatcheck raises on purpose.

CoatcheckError
├── BadRequest                the caller can mend it
│   ├── InvalidSubmission     a field of a submission is out of bounds
│   ├── InvalidInput          the payload does not fit the handler's signature
│   └── IdempotencyMismatch   a known key came with another payload, and the caller was strict
├── JobNotFound               no such job in this organisation
├── JobAlreadyEnded           a terminal job cannot be cancelled
├── DatabaseUnavailable       PostgreSQL is away; nothing was done
├── OutcomeUnknown            the connection broke during COMMIT; the same key finds out
├── SchemaMismatch            the database was migrated by another version
├── SettingsInvalid           a setting is wrong; says which and what is allowed
└── EmbeddedPostgresError     the embedded server cannot run (store/embedded/errors.py)

What a handler raises to say what should become of its job:

JobSignal
├── RetryLater                try again after a delay (spends an attempt)
├── FailJob                   fail for good, without retries
├── TargetUnreachable         what the job needs is away; try later, spending no attempt
└── JobCancelled              stop here, because cancellation was asked for
"""

from __future__ import annotations

from dataclasses import dataclass


class CoatcheckError(Exception):
    """The root of them all. ``code`` is stable and machine-readable."""

    code = "internal"


class BadRequest(CoatcheckError):
    code = "bad_request"


class InvalidSubmission(BadRequest):
    code = "invalid_submission"


@dataclass(frozen=True, slots=True)
class FieldIssue:
    field: str
    issue: str


class InvalidInput(BadRequest):
    """The payload does not fit the handler. ``issues`` names each field and what is wrong."""

    code = "invalid_input"

    def __init__(self, issues: list[FieldIssue]) -> None:
        self.issues = issues
        super().__init__("; ".join(f"{issue.field}: {issue.issue}" for issue in issues))


class IdempotencyMismatch(BadRequest):
    code = "idempotency_mismatch"


class JobNotFound(CoatcheckError):
    """There is no such job in this organisation; a foreign id is answered the same."""

    code = "job_not_found"


class JobAlreadyEnded(CoatcheckError):
    """A job that has ended cannot be cancelled."""

    code = "job_already_ended"


class DatabaseUnavailable(CoatcheckError):
    code = "database_unavailable"


class OutcomeUnknown(CoatcheckError):
    code = "outcome_unknown"


class SchemaMismatch(CoatcheckError):
    code = "schema_mismatch"


class SettingsInvalid(CoatcheckError):
    code = "settings_invalid"


class JobSignal(Exception):
    """The root of what a handler raises on purpose."""


class RetryLater(JobSignal):
    """Try again after ``after`` seconds (or the usual backoff). Spends an attempt."""

    def __init__(
        self, reason: str, *, after: float | None = None, code: str = "retry_later"
    ) -> None:
        super().__init__(reason)
        self.after = after
        self.code = code


class FailJob(JobSignal):
    """Fail for good, without retries."""

    def __init__(self, reason: str, *, code: str = "job_failed") -> None:
        super().__init__(reason)
        self.code = code


class TargetUnreachable(JobSignal):
    """What the job needs cannot be reached. Tried again later, spending no attempt."""

    def __init__(self, reason: str, *, after: float | None = None) -> None:
        super().__init__(reason)
        self.after = after


class JobCancelled(JobSignal):
    """The handler stops because cancellation was asked for. The job ends cancelled."""

    def __init__(self, reason: str = "cancellation was asked for") -> None:
        super().__init__(reason)
