"""The client's exceptions.

CoatcheckError
└── ClientError
    ├── ApiError                  the server refused; has its ``status`` and ``code``
    │   ├── InvalidRequestError   400 and every 4xx not listed below: correct the request
    │   ├── AuthenticationError   401: no credential, or not a valid one
    │   ├── PaymentRequiredError  402: the organisation's subscription is not active
    │   ├── PermissionDeniedError 403: the credential lacks a scope
    │   ├── NotFoundError         404: it does not exist, or is not yours
    │   ├── ConflictError         409: such as cancelling a job that has ended
    │   ├── RateLimitedError      429: too many requests, or too many jobs waiting
    │   └── ServerError           5xx
    ├── ConnectionFailed          no answer, even after the retries
    ├── UnexpectedAnswer          an answer that is not from Coatcheck
    ├── JobFailed                 the awaited job did not complete
    ├── BatchFailed               the awaited batch was cancelled, or its list was refused
    ├── ExportFailed              the server could not write a batch's results
    ├── InvalidWebhook            a webhook that is not from Coatcheck, or was changed in transit
    └── WaitTimeout               the job did not end in time; it goes on
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec

from coatcheck.domain.errors import CoatcheckError

_DIGITS_MAX = 9


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """How many seconds the server asks to wait; None if it does not say.

    A date is compared with the answer's own Date: this machine's clock may be wrong.
    """
    given = headers.get("retry-after", "").strip()
    if given.isascii() and given.isdigit():
        return float(given) if len(given) <= _DIGITS_MAX else None
    until = _date(given)
    if until is None:
        return None
    said_at = _date(headers.get("date", "")) or datetime.now(UTC)
    return max(0.0, (until - said_at).total_seconds())


def _date(text: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)


if TYPE_CHECKING:
    from coatcheck.client.models import BatchBody, BatchExport, GraphJob, JobBody, JobDetails


class ClientError(CoatcheckError):
    """The base class of the client's exceptions. ``code`` is stable and machine-readable."""

    code = "client_error"


@dataclass(frozen=True, slots=True)
class ErrorDetail:
    """One error in a request: the field, the issue, and its location."""

    field: str
    issue: str
    location: str


class ApiError(ClientError):
    """The server refused. ``code`` is the server's; ``request_id`` finds it in the server's log.

    ``retry_after`` is the number of seconds to wait before asking again, if the server said so.
    ``job_url`` is the job's URL, if the answer is the failure of a job.
    """

    # All fields are passed to Exception, so that an error can be pickled.
    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        details: Sequence[ErrorDetail] = (),
        request_id: str | None = None,
        retry_after: float | None = None,
        job_url: str | None = None,
    ) -> None:
        super().__init__(status, code, message, details, request_id, retry_after, job_url)
        self.status = status
        self.code = code
        self.message = message
        self.details = tuple(details)
        self.request_id = request_id
        self.retry_after = retry_after
        self.job_url = job_url

    def __str__(self) -> str:
        where = f" (request {self.request_id})" if self.request_id else ""
        return f"{self.status} {self.code}: {self.message}{where}"


class InvalidRequestError(ApiError):
    """The request is invalid: ``details`` names the fields, if the server knows them."""


class AuthenticationError(ApiError):
    """401: there was no credential, or an unknown, revoked or expired one."""


class PaymentRequiredError(ApiError):
    """402: the organisation's subscription is not active. Results can still be read."""


class PermissionDeniedError(ApiError):
    """403: the credential lacks the scope that this needs."""


class NotFoundError(ApiError):
    """404: it does not exist, or this credential may not see it."""


class ConflictError(ApiError):
    """409: the current state does not allow it, such as cancelling a job that has ended."""


class RateLimitedError(ApiError):
    """429, even after the retries. ``retry_after`` says when to try again."""


class ServerError(ApiError):
    """5xx, even after the retries of those worth retrying."""


class ConnectionFailed(ClientError):
    """The server could not be reached, or did not answer, even after the retries.

    Whether the last request took effect is unknown. Submitting again with the same
    ``idempotency_key`` tells.
    """

    code = "connection_failed"


class UnexpectedAnswer(ClientError):
    """The answer is not from Coatcheck: check ``base_url``, and whether there is a proxy."""

    code = "unexpected_answer"


class JobFailed(ClientError):
    """The job ended without completing.

    ``code`` and ``message`` are those of the job's ``error``; a cancelled job's code is
    ``cancelled``. ``job`` is the job.
    """

    def __init__(self, job: JobBody | JobDetails | GraphJob) -> None:
        super().__init__(job)
        self.job = job
        self.code = job.error.code if job.error else "job_failed"
        self.message = job.error.message if job.error else "The server gave no reason."

    def __str__(self) -> str:
        return f"job {self.job.id} is {self.job.status}: {self.code}: {self.message}"


class BatchFailed(ClientError):
    """The batch ended without running all its tasks.

    Its list could not be ingested: ``code`` and ``message`` say why. Or it was cancelled: the code
    is ``cancelled``. ``batch`` is the batch. Failed tasks do not make their batch fail.
    """

    def __init__(self, batch: BatchBody) -> None:
        super().__init__(batch)
        self.batch = batch
        error = batch.error
        self.code = error.code if error else batch.status
        self.message = error.message if error else "Not all of its tasks were run."

    def __str__(self) -> str:
        return f"batch {self.batch.id} is {self.batch.status}: {self.code}: {self.message}"


class ExportFailed(ClientError):
    """The server could not write a batch's results. ``export`` is the export.

    ``code`` says why: the server's, or ``wait_timeout`` if it was not written in time.
    """

    def __init__(self, export: BatchExport, code: str, message: str) -> None:
        super().__init__(export, code, message)
        self.export = export
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"export {self.export.id} is {self.export.status}: {self.code}: {self.message}"


class InvalidWebhook(ClientError):
    """The webhook was not signed with that secret, was changed in transit, or is too old."""

    code = "invalid_webhook"


class WaitTimeout(ClientError):
    """The job did not end in time. It goes on; ``job`` can be waited for again.

    ``job`` is what was waited for: a job, or a batch.
    """

    code = "wait_timeout"

    def __init__(self, job: JobBody | JobDetails | BatchBody | GraphJob, seconds: float) -> None:
        super().__init__(job, seconds)
        self.job = job
        self.seconds = seconds

    def __str__(self) -> str:
        return f"job {self.job.id} is still {self.job.status} after {self.seconds:g} s"


_KINDS: Final[Mapping[int, type[ApiError]]] = {
    401: AuthenticationError,
    402: PaymentRequiredError,
    403: PermissionDeniedError,
    404: NotFoundError,
    409: ConflictError,
    429: RateLimitedError,
}


_PROBLEM: Final = "application/problem+json"
_JSON: Final = "application/json"
"""Used by the APIs for other clients, and for unknown paths. Other servers use it as well."""
_OUR_TYPES: Final = "urn:coatcheck:problem:"


def api_error(status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """The error for an answer of 4xx or 5xx.

    Something between here and Coatcheck may have answered instead: then there is no problem
    document, and the body is not quoted.
    """
    kind = _KINDS.get(status) or (ServerError if status >= 500 else InvalidRequestError)
    problem = _problem(headers, body)
    code, message = problem.get("code"), problem.get("message") or problem.get("detail")
    return kind(
        status,
        code if isinstance(code, str) else f"http_{status}",
        message if isinstance(message, str) else _phrase(status),
        _details(problem.get("details")),
        _text(problem.get("requestId")) or headers.get("x-request-id"),
        retry_after_seconds(headers),
        headers.get("location") if problem else None,
    )


def _problem(headers: Mapping[str, str], body: bytes) -> Mapping[str, Any]:
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in (_PROBLEM, _JSON):
        return {}
    try:
        problem = msgspec.json.decode(body)
    except ValueError:  # cut off in transit
        return {}
    if not isinstance(problem, dict):
        return {}
    is_ours = media_type == _PROBLEM or str(problem.get("type")).startswith(_OUR_TYPES)
    return problem if is_ours else {}


def _details(given: object) -> tuple[ErrorDetail, ...]:
    if not isinstance(given, list):
        return ()
    return tuple(
        ErrorDetail(*(str(detail.get(name, "")) for name in ("field", "issue", "location")))
        for detail in given
        if isinstance(detail, dict)
    )


def _text(given: object) -> str | None:
    return given if isinstance(given, str) else None


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "an answer without a reason"
