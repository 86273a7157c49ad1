"""What the client raises.

CoatcheckError
└── ClientError
    ├── ApiError                  the server refused; has its ``status`` and ``code``
    │   ├── InvalidRequestError   400 and every 4xx below that is not named: mend the request
    │   ├── AuthenticationError   401: no credential, or none that counts
    │   ├── PaymentRequiredError  402: the organisation's subscription is not active
    │   ├── PermissionDeniedError 403: the credential lacks a scope
    │   ├── NotFoundError         404: nothing of that name, or nothing that is yours
    │   ├── ConflictError         409: such as cancelling what has ended
    │   ├── RateLimitedError      429: too many requests, or too many jobs waiting
    │   └── ServerError           5xx
    ├── ConnectionFailed          no answer, also after the retries
    ├── UnexpectedAnswer          an answer that is not Coatcheck's
    ├── JobFailed                 the job was waited for, and did not complete
    ├── BatchFailed               the same of a batch: its list was refused, or it was cancelled
    ├── ExportFailed              a batch's results could not be written to be fetched
    ├── InvalidWebhook            a webhook that is not Coatcheck's, or was changed on its way
    └── WaitTimeout               the job had not ended in time; it goes on
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec

from coatcheck.client.retry_after import retry_after_seconds
from coatcheck.domain.errors import CoatcheckError

if TYPE_CHECKING:
    from coatcheck.client.batch_body import BatchBody, BatchExport
    from coatcheck.client.console_body import JobDetails
    from coatcheck.client.graph_body import GraphJob
    from coatcheck.client.job_body import JobBody


class ClientError(CoatcheckError):
    """The root of what the client raises. ``code`` is stable and machine-readable."""

    code = "client_error"


@dataclass(frozen=True, slots=True)
class ErrorDetail:
    """One thing that is wrong with a request: which field, what, and where it stood."""

    field: str
    issue: str
    location: str


class ApiError(ClientError):
    """The server refused. ``code`` is the server's; ``request_id`` finds it in the server's log.

    ``retry_after`` is the number of seconds after which the server wants to be asked again, if it
    said so. ``job_url`` is where the job is found, if it is a job's failure that was answered.
    """

    # Every field is an argument of Exception's own, so that an error can be pickled.
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
    """The request is wrong: ``details`` names the fields, where the server can tell them."""


class AuthenticationError(ApiError):
    """401: there was no credential, or an unknown, revoked or expired one."""


class PaymentRequiredError(ApiError):
    """402: the organisation's subscription is not active. Results can still be read."""


class PermissionDeniedError(ApiError):
    """403: the credential lacks the scope that this needs."""


class NotFoundError(ApiError):
    """404: there is nothing of that name, or nothing that this credential may see."""


class ConflictError(ApiError):
    """409: the state of things does not allow it, such as cancelling a job that has ended."""


class RateLimitedError(ApiError):
    """429, also after the retries. ``retry_after`` says when to come back."""


class ServerError(ApiError):
    """5xx, also after the retries of those that are worth it."""


class ConnectionFailed(ClientError):
    """The server could not be reached, or did not answer, also after the retries.

    Whether the last request took effect is not known. Submitting again under the same
    ``idempotency_key`` finds out.
    """

    code = "connection_failed"


class UnexpectedAnswer(ClientError):
    """The answer is not one that Coatcheck gives: is ``base_url`` right, is there a proxy?"""

    code = "unexpected_answer"


class JobFailed(ClientError):
    """The job ended, and did not complete.

    ``code`` and ``message`` are those of the job's ``error``; a cancelled job's code is
    ``cancelled``. ``job`` is the job.
    """

    def __init__(self, job: JobBody | JobDetails | GraphJob) -> None:
        super().__init__(job)
        self.job = job
        self.code = job.error.code if job.error else "job_failed"
        self.message = job.error.message if job.error else "The server does not say why."

    def __str__(self) -> str:
        return f"job {self.job.id} is {self.job.status}: {self.code}: {self.message}"


class BatchFailed(ClientError):
    """The batch ended without having run all its tasks.

    Its list could not be taken in: ``code`` and ``message`` say why. Or it was cancelled: the code
    is ``cancelled``. ``batch`` is the batch. Tasks that failed are no failure of their batch.
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
    """A batch's results could not be written by the server. ``export`` is the export.

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
    """The webhook was not signed with that secret, was changed on its way, or is too old."""

    code = "invalid_webhook"


class WaitTimeout(ClientError):
    """The job had not ended when the time was up. It goes on; ``job`` can be waited for again.

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
"""Where clients of other APIs are served, and where nothing is. Others answer with it as well."""
_OUR_TYPES: Final = "urn:coatcheck:problem:"


def api_error(status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """The error that an answer of 4xx or 5xx stands for.

    Something between here and Coatcheck may have answered instead: then there is no problem
    document, and what the body says is not repeated.
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
    except ValueError:  # cut off on its way
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
