"""All errors that the core raises on purpose; products derive theirs from these.

CoatcheckError
├── BadRequest                the caller can correct it
│   ├── InvalidSubmission     a field of a submission is out of bounds
│   ├── InvalidInput          the payload does not fit the handler's signature
│   ├── InvalidParameter      a query field, header or part of the path is wrong
│   ├── InvalidBody           the body is not the expected JSON
│   ├── UnknownLane           the lane does not exist
│   ├── NotAsyncEligible      the endpoint only accepts synchronous calls
│   ├── IdempotencyMismatch   a known key came with another payload, and the caller was strict
│   ├── UrlForbidden          the egress guard refuses the address
│   ├── FileRejected          the file cannot be used; says why
│   │   └── ArchiveRejected   the archive is refused
│   ├── BodyTooLarge          the body has more bytes than the route accepts
│   ├── BodyTooSlow           the body did not arrive in time
│   ├── CompressedBody        the content coding is not accepted
│   ├── BodyInflatesTooMuch   the compression ratio of the body is too high
│   └── WrongMediaType        the content type is not accepted
├── Unauthenticated           the credential is missing or not valid; callers cannot tell which
├── MissingScope              the credential does not allow this
├── UserRequired              the credential names no user, and this belongs to each user
├── SubscriptionInactive      the organisation's plan does not allow new jobs
├── RateLimited               too many requests; says when to retry
├── QueueFull                 the organisation has too many waiting jobs
├── TooManyBytesInFlight      the caller's bodies or large responses reach the caller's limit
├── ServerBusy                those of all callers reach the server's limit; nothing was done
├── TooManyHeldAnswers        the caller has too many open streams and waiting responses
├── LookUpRefused             a host name is not resolved now; nothing is known about it
│   ├── TooManyLookUps        the organisation has too many names being resolved
│   └── ResolverBusy          all organisations together have
├── ClientGone                the caller disconnected before its request was complete
├── NotFound                  it does not exist, or the caller may not see it
│   ├── EndpointNotFound      the service, version or path does not exist; says which
│   └── JobNotFound           the job does not exist in this organisation
├── NotInstalled              the server lacks an optional package; says what to install
├── Conflict                  the current state does not allow it
│   ├── JobAlreadyEnded       a terminal job cannot be cancelled
│   ├── JobNotEnded           the job has not ended, and this needs one that has
│   ├── InputNotKept          the job's input is no longer stored
│   ├── NotRetryable          jobs of this kind are not retried; says what to do instead
│   ├── WebhookConflict       the organisation's webhooks do not allow it
│   ├── ServiceNameTaken      another service has that name
│   ├── TooManyServices       the organisation has the maximum number of services
│   ├── IdempotencyKeyInUse   the key names a job that the caller may not see
│   ├── SecretsLost           a registered secret is missing, or is not the one that was sealed
│   ├── UploadMissing         the upload's URL received nothing, or its file was removed
│   ├── UploadAlreadyUsed     a used upload cannot be written again
│   └── BlobChanged           another blob replaced the one that was being read
├── SealingKeyMissing         no key is set that seals, or opens, a registered secret
├── SignedUrlExpired          the signed URL has expired
├── DatabaseUnavailable       PostgreSQL is unreachable; nothing was done
├── OutcomeUnknown            the connection broke during COMMIT; retry with the same key
├── SchemaMismatch            the database was migrated by another version
│   └── DatabaseBeforeFirstRelease  a development version before 0.1.0 created it
├── SettingsInvalid           a setting is wrong; says which, and what is allowed
│   └── SessionsNotKept       the database is behind a pooler that shares sessions
└── EmbeddedPostgresError     the embedded server cannot run (db/embedded/folder.py)

What a handler raises to decide the outcome of its job:

JobSignal
├── RetryLater                retry after a delay (spends an attempt)
├── FailJob                   fail for good, without retries
├── TargetUnreachable         what the job needs is unreachable; retry later, spending no attempt
└── JobCancelled              stop, because cancellation was requested
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from coatcheck.domain.failures import CoreFailure


class CoatcheckError(Exception):
    """The root of all of them. ``code`` is stable and machine-readable."""

    code = "internal"
    public_text: ClassVar[str | None] = None
    """The text for callers, if the error's own text describes internals."""


class BadRequest(CoatcheckError):
    """The request is wrong; the caller can correct it."""

    code = "bad_request"


class InvalidSubmission(BadRequest):
    """A field of a submission is out of bounds."""

    code = "invalid_submission"


@dataclass(frozen=True, slots=True)
class FieldIssue:
    field: str
    issue: str


class InvalidInput(BadRequest):
    """The input does not fit the handler. ``details`` names each field and what is wrong."""

    code = "invalid_input"

    def __init__(self, issues: list[FieldIssue]) -> None:
        self.issues = issues
        super().__init__("; ".join(f"{issue.field}: {issue.issue}" for issue in issues))


class InvalidParameter(BadRequest):
    """A query field, a header or a part of the path is wrong. ``details`` names it."""

    code = "invalid_parameter"

    def __init__(self, field: str, issue: str, location: str = "query") -> None:
        super().__init__(f"{field}: {issue}")
        self.field = field
        self.issue = issue
        self.location = location


class InvalidBody(BadRequest):
    """The body is not JSON, or not the expected JSON."""

    code = "invalid_body"


class UnknownLane(BadRequest):
    """There is no such lane."""

    code = "unknown_lane"


class NotAsyncEligible(BadRequest):
    """The endpoint only accepts synchronous calls."""

    code = "not_async_eligible"


class IdempotencyMismatch(BadRequest):
    """A known idempotency key came with another payload, and the caller asked to be strict."""

    code = "idempotency_mismatch"


class UrlForbidden(BadRequest):
    """The egress guard refuses the address. Its text says which rule, not what was resolved."""

    code = "url_forbidden"


class BodyTooLarge(BadRequest):
    """The body has more bytes than the route accepts."""

    code = "body_too_large"

    def __init__(self, bytes_max: int) -> None:
        super().__init__(f"The body must have at most {bytes_max} bytes.")


class BodyTooSlow(BadRequest):
    """The body did not arrive in time."""

    code = "body_too_slow"

    def __init__(self, seconds: float) -> None:
        super().__init__(f"The body did not arrive within {seconds:g} seconds.")


class CompressedBody(BadRequest):
    """The content coding of the body is not accepted; gzip is."""

    code = "compressed_body"


class BodyInflatesTooMuch(BadRequest):
    """The compression ratio is so high that the body must have been made for it."""

    code = "compression_ratio"


class WrongMediaType(BadRequest):
    """The content type of the body is not accepted."""

    code = "unsupported_media_type"


class IdempotencyKeyRequired(BadRequest):
    """The route requires an idempotency key."""

    code = "idempotency_key_required"


class FileRejected(BadRequest):
    """The file cannot be used. ``details`` has the reason, as a short and stable word."""

    code = "file_rejected"

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class ArchiveRejected(FileRejected):
    """The archive cannot be used. ``details`` has the reason."""

    code = "archive_rejected"


class Unauthenticated(CoatcheckError):
    """The credential is missing, unknown, revoked or expired. It does not say which."""

    code = "unauthenticated"
    public_text = (
        "A valid credential is needed: an API key or a token, as `Authorization: Bearer ...` or "
        "`X-Api-Key: ...`."
    )


class MissingScope(CoatcheckError):
    """The credential does not have the scope that the route requires."""

    code = "missing_scope"


class NotServedAsCode(CoatcheckError):
    """A browser requested content that a tenant may have written, to run it in a page."""

    code = "not_served_as_code"


class TimeoutNotAllowed(CoatcheckError):
    """The timeout of a service to register exceeds the organisation's limit."""

    code = "timeout_not_allowed"

    def __init__(self, field: str, seconds: float, seconds_max: float) -> None:
        super().__init__(
            f"{field}: {seconds:g} s exceeds the organisation's limit of {seconds_max:g} s. "
            "The operator of this deployment can raise it."
        )


class UserRequired(CoatcheckError):
    """The resource belongs to a user, and the credential names none."""

    code = "user_required"


class SubscriptionInactive(CoatcheckError):
    """The organisation's plan does not allow new jobs."""

    code = "subscription_inactive"


class RateLimited(CoatcheckError):
    """Too many requests in the window of a rate limit, which the ``RateLimit`` headers describe."""

    code = "rate_limited"

    def __init__(
        self,
        retry_after: int,
        headers: Sequence[tuple[bytes, bytes]],
        message: str = "Too many requests; see Retry-After.",
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.headers = headers


class TooManyBytesInFlight(CoatcheckError):
    """The caller's requests and responses in flight reach the limit of one caller, in bytes."""

    code = "too_many_bytes_in_flight"

    def __init__(self, retry_after: int, message: str, *, body_is_unread: bool) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.body_is_unread = body_is_unread


class ServerBusy(CoatcheckError):
    """The requests and responses of all callers in flight reach the server's limit, in bytes."""

    code = "server_busy"

    def __init__(self, retry_after: int, message: str, *, body_is_unread: bool) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.body_is_unread = body_is_unread


class QueueFull(CoatcheckError):
    """The organisation's backlog has reached its limit."""

    code = "queue_full"

    def __init__(
        self,
        retry_after: int,
        message: str = "The organisation has too many jobs waiting; see Retry-After.",
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class LookUpRefused(CoatcheckError):
    """A host name is not resolved now. It may be valid: try again."""

    code = "look_up_refused"


class TooManyLookUps(LookUpRefused):
    """Too many of the organisation's host names are being resolved, without an answer."""

    code = "too_many_look_ups"

    def __init__(self, retry_after: int) -> None:
        super().__init__("Too many host names of the organisation do not answer; see Retry-After.")
        self.retry_after = retry_after


class ResolverBusy(LookUpRefused):
    """Too many host names of all organisations are being resolved."""

    code = "resolver_busy"
    public_text = "Too many host names are being looked up. Nothing was done; try again."

    def __init__(self) -> None:
        super().__init__("too many look-ups of host names are under way")


class TooManyHeldAnswers(CoatcheckError):
    """Too many responses are held open for one caller, or in all. Its text says which."""

    code = "too_many_held_answers"
    retry_after = 5

    def __init__(self, whose: str, most: int) -> None:
        super().__init__(
            f"{most} answers {whose} are held open: streams, long-polls and calls that wait. "
            "Close some, or ask without waiting; nothing was done."
        )


class ClientGone(CoatcheckError):
    """The caller disconnected before its request was complete. Nobody reads the response."""

    code = "client_gone"


class NotFound(CoatcheckError):
    """It does not exist, or the caller may not see it: both are answered alike."""

    code = "not_found"
    public_text: ClassVar[str | None] = "There is nothing of that name."


class EndpointNotFound(NotFound):
    """The service, version or path does not exist. Its text says which, and what exists."""

    public_text = None


class JobNotFound(NotFound):
    """The job does not exist. Another organisation's id is answered alike.

    ``found_at`` says where the caller finds the job, if it is another product's.
    """

    code = "job_not_found"
    public_text = "There is no such job."
    found_at: str | None = None


class NotInstalled(CoatcheckError):
    """The server lacks an optional package. Its text says what to install."""

    code = "not_installed"
    public_text = None


class Conflict(CoatcheckError):
    """The current state does not allow it."""

    code = "conflict"


class JobAlreadyEnded(Conflict):
    """A job that has ended cannot be cancelled."""

    code = "job_already_ended"


class JobNotEnded(Conflict):
    """The job has not ended. Until then it cannot be retried, and its artifacts cannot be deleted,
    because it may still replace them."""

    code = "job_not_ended"


class InputNotKept(Conflict):
    """The job's input is no longer stored."""

    code = "input_not_kept"


class NotRetryable(Conflict):
    """Jobs of this kind are not retried. Its text says what to do instead."""

    code = "not_retryable"


class UploadMissing(Conflict):
    """The upload's URL received nothing yet, or its file was removed."""

    code = "upload_missing"


class WebhookConflict(Conflict):
    """The state of the organisation's webhooks does not allow it."""

    code = "webhook_conflict"


class TooManyWebhookEndpoints(WebhookConflict):
    """The organisation has the maximum number of webhook endpoints."""

    code = "too_many_endpoints"


class WebhookEndpointDeleted(WebhookConflict):
    """The delivery was for a deleted endpoint, and cannot be sent again."""

    code = "endpoint_deleted"


class TooManyServices(Conflict):
    """The organisation has the maximum number of services."""

    code = "too_many_services"

    def __init__(self, most: int) -> None:
        super().__init__(
            f"The organisation has {most} services, which is the maximum; remove one first."
        )


class IdempotencyKeyInUse(Conflict):
    """The key names a job of the organisation that the caller may not see.

    It says nothing about that job, and is the same for any payload. Otherwise a caller who guesses
    a key could find out what its owner sent with it.
    """

    code = "idempotency_key_in_use"

    def __init__(self) -> None:
        super().__init__("Another caller of the organisation uses this idempotency key.")


class ServiceNameTaken(Conflict):
    """Code declares a service of that name, or another workspace registered one."""

    code = "service_name_taken"


class SealingKeyMissing(CoatcheckError):
    """No key is set that could seal a secret, or open a stored one. The operator must set it; jobs
    that need it wait."""

    code = "sealing_key_missing"
    public_text = (
        "The secrets of the service cannot be sealed or opened: the operator has to set a key that "
        "this deployment lacks. Nothing was done."
    )


class SecretsLost(Conflict):
    """The secrets of a target are no longer stored, or are not the ones that were sealed for it.
    They must be registered again."""

    code = "secrets_lost"


class SignedUrlExpired(CoatcheckError):
    """The signed URL has expired."""

    code = "url_expired"


class UploadAlreadyUsed(Conflict):
    """The uploaded list is already used as an input, and must not change."""

    code = "upload_already_used"


class BlobChanged(Conflict):
    """Another blob replaced the one that was being read."""

    code = "blob_changed"


class DatabaseUnavailable(CoatcheckError):
    """PostgreSQL is unreachable. Nothing was done."""

    code = "database_unavailable"
    public_text = "The database cannot be reached. Nothing was done; try again."


class OutcomeUnknown(CoatcheckError):
    """The request may have taken effect: the connection to the database broke in mid-statement, or
    the server stopped. Send it again with the same idempotency key."""

    code = "outcome_unknown"
    public_text = (
        "The connection to the database broke. The request may have taken effect: send it again "
        "under the same idempotency key to find out."
    )


class BlobStoreUnavailable(CoatcheckError):
    """The blob store is unreachable. Nothing was stored."""

    code = "blob_store_unavailable"
    public_text = "The blob store cannot be reached. Nothing was kept; try again."


class SchemaMismatch(CoatcheckError):
    """Another version migrated the database."""

    code = "schema_mismatch"
    public_text = "The database's schema is of another version than this server."


class DatabaseBeforeFirstRelease(SchemaMismatch):
    """A development version created the database. It cannot be upgraded."""

    def __init__(self) -> None:
        super().__init__(
            "this database was made by a development version of Coatcheck before 0.1.0, and cannot "
            "be upgraded; nothing in it was changed. Create an empty database, name it in "
            "COATCHECK_DATABASE_URL, and run `coatcheck migrate`. If `coatcheck up` runs this one, "
            "stop it and remove its data folder instead: all jobs and keys in it are lost"
        )


class SettingsInvalid(CoatcheckError):
    """A setting is wrong. Its text says which, and what is allowed."""

    code = "settings_invalid"


class SessionsNotKept(SettingsInvalid):
    """The database is behind a pooler in transaction or statement mode."""


class JobSignal(Exception):
    """The root of the signals that a handler raises on purpose."""


class RetryLater(JobSignal):
    """Retry after ``after`` seconds (or the usual backoff). Spends an attempt."""

    def __init__(
        self, reason: str, *, after: float | None = None, code: str = CoreFailure.RETRY_LATER
    ) -> None:
        super().__init__(reason)
        self.after = after
        self.code = code


class ReportsNotAwaited(RetryLater):
    """An async handler reports faster than its reports are stored, and does not await them."""

    def __init__(self, waiting_bytes: int) -> None:
        super().__init__(
            f"{waiting_bytes} bytes of reports wait to be stored; await job.log() and job.emit(),"
            " which slow the handler down",
            code=CoreFailure.REPORTS_NOT_AWAITED,
        )


class FailJob(JobSignal):
    """Fail for good, without retries."""

    def __init__(self, reason: str, *, code: str = CoreFailure.JOB_FAILED) -> None:
        super().__init__(reason)
        self.code = code


class TargetUnreachable(JobSignal):
    """What the job needs is unreachable. Retried later, spending no attempt."""

    def __init__(self, reason: str, *, after: float | None = None) -> None:
        super().__init__(reason)
        self.after = after


class JobPostponed(JobSignal):
    """Retried after ``after`` seconds, spending no attempt. Only for executors that count these
    retries themselves, and give up."""

    def __init__(self, reason: str, *, after: float, code: str) -> None:
        super().__init__(reason)
        self.after = after
        self.code = code


class JobParked(JobSignal):
    """A remote continues the work. The attempt ends here, and a maintenance loop ends the job."""

    def __init__(self) -> None:
        super().__init__("a remote continues the work")


class JobCancelled(JobSignal):
    """The handler stops because cancellation was requested. The job ends cancelled."""

    def __init__(self, reason: str = "cancellation was requested") -> None:
        super().__init__(reason)
