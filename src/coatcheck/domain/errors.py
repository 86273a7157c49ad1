"""Every error that the core raises on purpose; products derive theirs from these.

CoatcheckError
├── BadRequest                the caller can mend it
│   ├── InvalidSubmission     a field of a submission is out of bounds
│   ├── InvalidInput          the payload does not fit the handler's signature
│   ├── InvalidParameter      a query field, header or part of the path is wrong
│   ├── InvalidBody           the body is not the JSON that is wanted
│   ├── UnknownLane           there is no such lane
│   ├── NotAsyncEligible      the endpoint only takes synchronous calls
│   ├── IdempotencyMismatch   a known key came with another payload, and the caller was strict
│   ├── UrlForbidden          the egress guard does not let us call that address
│   ├── FileRejected          a file that cannot be used, and why
│   │   └── ArchiveRejected   an archive that is not read
│   ├── BodyTooLarge          more bytes than the route takes
│   ├── BodyTooSlow           the body did not arrive in time
│   ├── CompressedBody        a content coding that is not taken
│   ├── BodyInflatesTooMuch   a compressed body that is a multiple of its size
│   └── WrongMediaType        a content type that is not taken
├── Unauthenticated           no credential, or none that counts: all answered alike
├── MissingScope              the credential does not allow this
├── UserRequired              the credential is nobody's in particular, and this is each user's own
├── SubscriptionInactive      the organisation's plan does not allow new work
├── RateLimited               too many requests; says when to come back
├── QueueFull                 the organisation has too many jobs waiting
├── TooManyBytesInFlight      one caller's bodies or large answers hold as much as they may
├── ServerBusy                everybody's do; nothing was done
├── TooManyHeldAnswers        the caller has too many streams and answers that wait open
├── LookUpRefused             a host's name is not looked up now: nothing was found out about it
│   ├── TooManyLookUps        the organisation has too many names being looked up
│   └── ResolverBusy          all organisations together have
├── ClientGone                the caller left before its request was whole
├── NotFound                  nothing of that name, or nothing the caller may see
│   ├── EndpointNotFound      no such service, version or path, and which of the three
│   └── JobNotFound           no such job in this organisation
├── NotInstalled              this server lacks something optional; says what to install
├── Conflict                  what is there does not allow that
│   ├── JobAlreadyEnded       a terminal job cannot be cancelled
│   ├── JobNotEnded           what is done with jobs that have ended was asked of one that goes on
│   ├── InputNotKept          what a job was handed in with is gone
│   ├── NotRetryable          a job of a kind that is not retried; says what to do instead
│   ├── WebhookConflict       what is there of webhooks does not allow that
│   ├── ServiceNameTaken      another service of that name is there already
│   ├── TooManyServices       the organisation has registered as many as it may have
│   ├── IdempotencyKeyInUse   the key names a job that the caller may not see
│   ├── SecretsLost           a registered secret is gone, or what is stored is not what was sealed
│   ├── UploadMissing         nothing was put to the upload's URL yet, or it is gone
│   ├── UploadAlreadyUsed     an upload that was used is not written again
│   └── BlobChanged           another blob has taken the place of the one that was being read
├── SealingKeyMissing         no key is set that seals, or opens, a registered secret
├── SignedUrlExpired          a URL that was signed for a time, and the time is up
├── DatabaseUnavailable       PostgreSQL is away; nothing was done
├── OutcomeUnknown            the connection broke during COMMIT; the same key finds out
├── SchemaMismatch            the database was migrated by another version
│   └── DatabaseBeforeFirstRelease  a development version before 0.1.0 made it; no step leads on
├── SettingsInvalid           a setting is wrong; says which and what is allowed
│   └── SessionsNotKept       the database is behind a pooler that lends its sessions out
└── EmbeddedPostgresError     the embedded server cannot run (db/embedded/errors.py)

What a handler raises to say what should become of its job:

JobSignal
├── RetryLater                try again after a delay (spends an attempt)
├── FailJob                   fail for good, without retries
├── TargetUnreachable         what the job needs is away; try later, spending no attempt
└── JobCancelled              stop here, because cancellation was asked for
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


class CoatcheckError(Exception):
    """The root of them all. ``code`` is stable and machine-readable."""

    code = "internal"
    public_text: ClassVar[str | None] = None
    """What a caller reads in place of the error's own text, where that tells of the inside."""


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


class InvalidParameter(BadRequest):
    """A query field, a header or a part of the path is wrong. ``field`` names it."""

    code = "invalid_parameter"

    def __init__(self, field: str, issue: str, location: str = "query") -> None:
        super().__init__(f"{field}: {issue}")
        self.field = field
        self.issue = issue
        self.location = location


class InvalidBody(BadRequest):
    """The body is not JSON, or not the JSON that is wanted."""

    code = "invalid_body"


class UnknownLane(BadRequest):
    code = "unknown_lane"


class NotAsyncEligible(BadRequest):
    code = "not_async_eligible"


class IdempotencyMismatch(BadRequest):
    code = "idempotency_mismatch"


class UrlForbidden(BadRequest):
    """The egress guard refuses the address. Its text says which rule, not what was resolved."""

    code = "url_forbidden"


class BodyTooLarge(BadRequest):
    code = "body_too_large"

    def __init__(self, bytes_max: int) -> None:
        super().__init__(f"The body must have at most {bytes_max} bytes.")


class BodyTooSlow(BadRequest):
    code = "body_too_slow"

    def __init__(self, seconds: float) -> None:
        super().__init__(f"The body did not arrive within {seconds:g} seconds.")


class CompressedBody(BadRequest):
    code = "compressed_body"


class BodyInflatesTooMuch(BadRequest):
    """A compressed body that amounts to so many times its size that it was made to."""

    code = "compression_ratio"


class WrongMediaType(BadRequest):
    code = "unsupported_media_type"


class IdempotencyKeyRequired(BadRequest):
    code = "idempotency_key_required"


class FileRejected(BadRequest):
    """A file that cannot be used. ``reason`` is short and stable, for programs."""

    code = "file_rejected"

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class ArchiveRejected(FileRejected):
    """An archive that is not read."""

    code = "archive_rejected"


class Unauthenticated(CoatcheckError):
    """No credential, or one that is unknown, revoked or expired: which, is not said."""

    code = "unauthenticated"
    public_text = (
        "A valid credential is needed: an API key or a token, as `Authorization: Bearer ...` or "
        "`X-Api-Key: ...`."
    )


class MissingScope(CoatcheckError):
    code = "missing_scope"


class NotServedAsCode(CoatcheckError):
    """A browser asked for what a tenant may have written in order to run it in a page."""

    code = "not_served_as_code"


class TimeoutNotAllowed(CoatcheckError):
    """A service is to be registered with a longer timeout than its organisation may have."""

    code = "timeout_not_allowed"

    def __init__(self, field: str, seconds: float, seconds_max: float) -> None:
        super().__init__(
            f"{field}: {seconds:g} s is longer than the organisation's calls may take, which is "
            f"{seconds_max:g} s. Whoever operates this deployment can allow more."
        )


class UserRequired(CoatcheckError):
    """What is asked for is each user's own, and the credential names no user."""

    code = "user_required"


class SubscriptionInactive(CoatcheckError):
    code = "subscription_inactive"


class RateLimited(CoatcheckError):
    """Too many requests. ``headers`` are those of the limit that was met."""

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
    """One caller's bodies or answers under way hold as many bytes as one caller's may."""

    code = "too_many_bytes_in_flight"

    def __init__(self, retry_after: int, message: str, *, body_is_unread: bool) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.body_is_unread = body_is_unread


class ServerBusy(CoatcheckError):
    """All callers' bodies or answers under way hold as many bytes as there is room for."""

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
    """A host's name is not looked up now. It says nothing of the name: try again."""

    code = "look_up_refused"


class TooManyLookUps(LookUpRefused):
    """The organisation has too many names being looked up, which do not answer."""

    code = "too_many_look_ups"

    def __init__(self, retry_after: int) -> None:
        super().__init__("Too many host names of the organisation do not answer; see Retry-After.")
        self.retry_after = retry_after


class ResolverBusy(LookUpRefused):
    """Too many names of all organisations are being looked up."""

    code = "resolver_busy"
    public_text = "Too many host names are being looked up. Nothing was done; try again."

    def __init__(self) -> None:
        super().__init__("too many look-ups of host names are under way")


class TooManyHeldAnswers(CoatcheckError):
    """Too many answers are held open; ``whose`` says of whom."""

    code = "too_many_held_answers"
    retry_after = 5

    def __init__(self, whose: str, most: int) -> None:
        super().__init__(
            f"{most} answers {whose} are held open: streams, long-polls and calls that wait. "
            "Close some, or ask without waiting; nothing was done."
        )


class ClientGone(CoatcheckError):
    """The caller left before its request was whole. There is nobody to answer."""

    code = "client_gone"


class NotFound(CoatcheckError):
    """Nothing of that name, or nothing that the caller may see: answered the same."""

    code = "not_found"
    public_text: ClassVar[str | None] = "There is nothing of that name."


class EndpointNotFound(NotFound):
    """There is no such service, version or path. Its text says which, and what there is."""

    public_text = None


class JobNotFound(NotFound):
    """There is no such job in this organisation; a foreign id is answered the same."""

    code = "job_not_found"
    public_text = "There is no such job."


class NotInstalled(CoatcheckError):
    """Something optional is not installed where the server runs. Its text says what to install."""

    code = "not_installed"
    public_text = None


class Conflict(CoatcheckError):
    """What is there does not allow that."""

    code = "conflict"


class JobAlreadyEnded(Conflict):
    """A job that has ended cannot be cancelled."""

    code = "job_already_ended"


class JobNotEnded(Conflict):
    """Of a job that goes on no artifact is deleted, as it may yet replace it; nor is it retried."""

    code = "job_not_ended"


class InputNotKept(Conflict):
    """What a job was handed in with is gone."""

    code = "input_not_kept"


class NotRetryable(Conflict):
    """A job of a kind that is not retried. Its text says what to do instead."""

    code = "not_retryable"


class UploadMissing(Conflict):
    """Nothing was put to the upload's URL yet, or it is gone."""

    code = "upload_missing"


class WebhookConflict(Conflict):
    """What is there of an organisation's webhooks does not allow that."""

    code = "webhook_conflict"


class TooManyWebhookEndpoints(WebhookConflict):
    """An organisation registers only so many endpoints."""

    code = "too_many_endpoints"


class WebhookEndpointDeleted(WebhookConflict):
    """What was for an endpoint that was deleted is not sent again."""

    code = "endpoint_deleted"


class TooManyServices(Conflict):
    """The organisation has registered as many services as it may have."""

    code = "too_many_services"

    def __init__(self, most: int) -> None:
        super().__init__(
            f"The organisation has {most} services, which is as many as it may have; take one away."
        )


class IdempotencyKeyInUse(Conflict):
    """The key names a job of the organisation that the caller may not see.

    It says nothing of that job, and is the same whatever was sent: else whoever guesses a key
    could find out what its owner sent with it.
    """

    code = "idempotency_key_in_use"

    def __init__(self) -> None:
        super().__init__("Another caller of the organisation uses this idempotency key.")


class ServiceNameTaken(Conflict):
    """Code declares a service of that name, or another workspace has registered one."""

    code = "service_name_taken"


class SealingKeyMissing(CoatcheckError):
    """No key is set that could seal a secret, or open the one that is stored. The operator sets it:
    whoever meets this waits."""

    code = "sealing_key_missing"
    public_text = (
        "The secrets of the service cannot be sealed or opened: the operator has to set a key that "
        "this deployment lacks. Nothing was done."
    )


class SecretsLost(Conflict):
    """The secrets of a target are no longer stored, or what is stored is not what was sealed for
    them. They have to be registered again."""

    code = "secrets_lost"


class SignedUrlExpired(CoatcheckError):
    """The URL was signed, and is good no more."""

    code = "url_expired"


class UploadAlreadyUsed(Conflict):
    """The staged list is somebody's input by now: it is not changed under them."""

    code = "upload_already_used"


class BlobChanged(Conflict):
    """Another blob has taken the place of the one that was being read."""

    code = "blob_changed"


class DatabaseUnavailable(CoatcheckError):
    code = "database_unavailable"
    public_text = "The database cannot be reached. Nothing was done; try again."


class OutcomeUnknown(CoatcheckError):
    code = "outcome_unknown"
    public_text = (
        "The connection to the database broke. The request may have taken effect: send it again "
        "under the same idempotency key to find out."
    )


class BlobStoreUnavailable(CoatcheckError):
    code = "blob_store_unavailable"
    public_text = "The blob store cannot be reached. Nothing was kept; try again."


class SchemaMismatch(CoatcheckError):
    code = "schema_mismatch"
    public_text = "The database's schema is of another version than this server."


class DatabaseBeforeFirstRelease(SchemaMismatch):
    """A development version made the database: it must be made anew."""

    def __init__(self) -> None:
        super().__init__(
            "this database was made by a development version of Coatcheck before 0.1.0, and cannot "
            "be upgraded; nothing in it was changed. Create an empty database, name it in "
            "COATCHECK_DATABASE_URL, and run `coatcheck migrate`. If `coatcheck up` runs this one, "
            "stop it and remove its data folder instead: all jobs and keys in it are lost"
        )


class SettingsInvalid(CoatcheckError):
    code = "settings_invalid"


class SessionsNotKept(SettingsInvalid):
    """A pooler in transaction or statement mode stands before the database."""


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


class ReportsNotAwaited(RetryLater):
    """An async handler reports faster than can be stored, and does not await its reports."""

    def __init__(self, waiting_bytes: int) -> None:
        super().__init__(
            f"{waiting_bytes} bytes of reports wait to be stored; await job.log() and job.emit(),"
            " which hold the handler back",
            code="reports_not_awaited",
        )


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


class JobPostponed(JobSignal):
    """Tried again after ``after`` seconds, spending no attempt. Only for what counts by itself how
    often that happens, and gives up."""

    def __init__(self, reason: str, *, after: float, code: str) -> None:
        super().__init__(reason)
        self.after = after
        self.code = code


class JobParked(JobSignal):
    """The work goes on elsewhere: the attempt ends here, and somebody else will end the job."""

    def __init__(self) -> None:
        super().__init__("handed over to a remote")


class JobCancelled(JobSignal):
    """The handler stops because cancellation was asked for. The job ends cancelled."""

    def __init__(self, reason: str = "cancellation was asked for") -> None:
        super().__init__(reason)
