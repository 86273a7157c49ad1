"""Runs the jobs of http upstreams: makes the call, stores the answer, maps failures to outcomes.

The first part says how a failed call ends the attempt (fail, retry later, target unreachable), the
second reads and stores a body of any size, the third is the executor.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Literal, Self

import httpx2
import msgspec

from coatcheck.core.service_secrets import ServiceSecrets
from coatcheck.core.upstream_calls import (
    ANSWER_BYTES_MAX,
    ANSWER_INLINE_BYTES_MAX,
    ARTIFACT_NAME,
    CALL_URL_CHARACTERS_MAX,
    UpstreamAnswer,
    UpstreamCall,
    kept_headers,
)
from coatcheck.db.connection import PINNED_PLANS
from coatcheck.db.database import Database
from coatcheck.domain.catalogue import GATEWAY_SERVICE
from coatcheck.domain.errors import (
    CoatcheckError,
    FailJob,
    JobSignal,
    LookUpRefused,
    RetryLater,
    SealingKeyMissing,
    SecretsLost,
    TargetUnreachable,
    UrlForbidden,
)
from coatcheck.domain.failures import CoreFailure, FailureCode
from coatcheck.domain.remote_work import RemoteWork
from coatcheck.domain.service_definition import TIMEOUT_SECONDS_MAX, texts_to_mask
from coatcheck.egress import Guard, charged_to, guard_of
from coatcheck.egress.urls import parse_retry_after, read_target
from coatcheck.job import Job
from coatcheck.remotes.caller import without_secrets
from coatcheck.service import Service
from coatcheck.settings import Settings
from coatcheck.telemetry import traceparents, tracing
from coatcheck.version import __version__
from coatcheck.worker.cancellation import unless_cancelled

_log = logging.getLogger(__name__)

RETRY_AFTER_SECONDS_MAX: Final = 3_600.0
"""The upper bound on ``Retry-After``: a longer delay is shortened to this."""


class UpstreamFailure(FailureCode):
    """Calls of the gateway to HTTP upstreams"""

    STATUS = "upstream_status_{status}"
    """The upstream answered with this status. 429 and 5xx are retried."""
    REDIRECT = "upstream_redirect"
    """The upstream answered with a redirect, which is not followed."""
    TIMEOUT = "upstream_timeout"
    """The upstream did not answer in time. Retried."""
    BROKE_OFF = "upstream_broke_off"
    """The connection broke in the middle of the upstream's answer. Retried."""
    NOT_HTTP = "upstream_not_http"
    """The upstream's answer is not HTTP. Retried."""
    ANSWER_TOO_LARGE = "upstream_answer_too_large"
    """The upstream's answer is too large."""
    REQUEST_INVALID = "upstream_request_invalid"
    """The call would not be valid HTTP."""
    URL_FORBIDDEN = "url_forbidden"
    """The egress guard refuses the address."""
    SECRETS_LOST = "secrets_lost"
    """The secrets of the service are no longer stored. Register it again."""


def request_failure(error: Exception) -> JobSignal:
    """The outcome of a call that failed before the upstream answered anything."""
    match error:
        case UrlForbidden():
            return FailJob(str(error), code=UpstreamFailure.URL_FORBIDDEN)
        case LookUpRefused():
            return TargetUnreachable(str(error))
        case httpx2.LocalProtocolError() | httpx2.InvalidURL() | ValueError():
            return FailJob("The request is not valid HTTP.", code=UpstreamFailure.REQUEST_INVALID)
        case httpx2.RemoteProtocolError() if _received_bytes(error):
            return RetryLater("The upstream's answer is not HTTP.", code=UpstreamFailure.NOT_HTTP)
        case httpx2.ConnectTimeout():
            return TargetUnreachable("The upstream did not accept the connection in time.")
        case httpx2.ConnectError():
            return TargetUnreachable("The connection to the upstream failed.")
        case _:
            return TargetUnreachable("The upstream closed the connection before it answered.")


def secrets_failure(error: CoatcheckError) -> JobSignal:
    """The outcome if the registration's headers could not be decrypted. Nothing was sent."""
    match error:
        case SecretsLost():
            return FailJob(str(error), code=UpstreamFailure.SECRETS_LOST)
        case SealingKeyMissing():
            _log.error("an upstream's job waits, which does not count as an attempt: %s", error)
            return TargetUnreachable(str(error))
        case _:
            return TargetUnreachable("The secrets of the service cannot be read now.")


def incomplete_answer() -> JobSignal:
    """The outcome if the connection broke in the middle of the answer."""
    return RetryLater("The upstream's answer broke off.", code=UpstreamFailure.BROKE_OFF)


def timed_out(seconds: float) -> JobSignal:
    """The outcome if the whole call took too long."""
    return RetryLater(
        f"The upstream did not answer within {seconds:g} seconds.", code=UpstreamFailure.TIMEOUT
    )


def too_large(bytes_max: int) -> JobSignal:
    return FailJob(
        f"The upstream's answer has more than {bytes_max} bytes.",
        code=UpstreamFailure.ANSWER_TOO_LARGE,
    )


def error_status(
    status: int, headers: Mapping[str, str], excerpt: str, now: datetime | None = None
) -> JobSignal:
    """The outcome of an answer other than 2xx. ``headers`` are looked up by lower-case names."""
    if 300 <= status < 400:
        return FailJob(
            f"The upstream answered {status}. Redirects are not followed: register the URL that it"
            " leads to.",
            code=UpstreamFailure.REDIRECT,
        )
    message = f"The upstream answered {status}" + (f": {excerpt}" if excerpt else ".")
    code = UpstreamFailure.STATUS.format(status=status)
    if status == HTTPStatus.TOO_MANY_REQUESTS or status >= 500:
        return RetryLater(message, after=retry_after(headers, now or datetime.now(UTC)), code=code)
    return FailJob(message, code=code)


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """The delay in seconds that ``Retry-After`` asks for, in seconds or as a date, within bounds.

    A date is compared with the upstream's own clock, if its ``Date`` header gives that.
    """
    return parse_retry_after(headers, now, RETRY_AFTER_SECONDS_MAX)


def _received_bytes(error: Exception) -> bool:
    """Whether a protocol error is about bytes that came, rather than about a closed connection.

    httpcore2 wraps its parser's exception if there were bytes, and raises a text of its own if
    there were none.
    """
    carried = () if error.__cause__ is None else error.__cause__.args
    return any(isinstance(each, Exception) for each in carried)


_TEXT_TYPES: Final = frozenset(
    {
        "application/javascript",
        "application/x-ndjson",
        "application/x-www-form-urlencoded",
        "application/xml",
        "application/yaml",
    }
)
HELD_BYTES_MAX: Final = 64 * 1024
"""The part of an answer that is held in memory while it arrives: many may arrive slowly at once."""
_JSON_BLANKS: Final = b" \t\r\n"
_UTF8_NAMES: Final = frozenset({"", "utf-8", "utf8", "us-ascii", "ascii"})


class AnswerBody:
    """Buffers a body as it arrives: in memory up to a bound, then in an unnamed temporary file.

    A whole body that is short enough for a result is read back into memory. The file disappears
    when it is closed, and when the process is killed. A context manager.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held = bytearray()
        self._file: BinaryIO | None = None
        self.size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()

    async def add(self, piece: bytes) -> None:
        """Append the next piece. Raises FailJob when there are too many bytes."""
        self.size += len(piece)
        if self.size > ANSWER_BYTES_MAX:
            raise too_large(ANSWER_BYTES_MAX)
        self._held += piece
        if len(self._held) > HELD_BYTES_MAX:
            await asyncio.to_thread(self._write)

    async def end(self) -> BinaryIO | None:
        """The file of a body that is too long for a result, positioned at its beginning; else
        None, and ``held`` has the body."""
        if self._file is None:
            return None
        await asyncio.to_thread(self._write)
        self._file.seek(0)
        if self.size > ANSWER_INLINE_BYTES_MAX:
            return self._file
        self._held += await asyncio.to_thread(self._file.read)
        return None

    def held(self) -> bytes:
        """The whole body, after ``end`` returned None."""
        return bytes(self._held)

    def _write(self) -> None:
        if self._file is None:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 - see __exit__
        self._file.write(self._held)
        self._held.clear()


def inline_answer(status: int, headers: list[tuple[str, str]], body: bytes) -> UpstreamAnswer:
    """An answer that contains its body: as JSON or text where that preserves every byte."""
    answer = UpstreamAnswer(status, headers, size=len(body))
    if not body:
        return answer
    kind = _kind_of_text(headers, answer.media_type)
    if kind == "json" and _is_json(body):
        json = body.strip(_JSON_BLANKS)
        before, _, after = body.partition(json)
        return msgspec.structs.replace(
            answer,
            body_json=msgspec.Raw(json),
            blanks_before=before.decode("ascii"),
            blanks_after=after.decode("ascii"),
        )
    text = None if kind is None else _as_text(body)
    if text is not None:
        return msgspec.structs.replace(answer, body_text=text)
    return msgspec.structs.replace(answer, body_base64=base64.b64encode(body).decode("ascii"))


def artifact_answer(status: int, headers: list[tuple[str, str]], size: int) -> UpstreamAnswer:
    """An answer whose body is stored as the job's artifact."""
    return UpstreamAnswer(status, headers, artifact=ARTIFACT_NAME, size=size)


def is_text(headers: list[tuple[str, str]]) -> bool:
    """Whether a body under these headers claims to be JSON or other text, in UTF-8."""
    return _kind_of_text(headers, UpstreamAnswer(0, headers).media_type) is not None


def storable_type(media_type: str) -> str:
    """A media type that an artifact may have: an invalid one becomes that of plain bytes."""
    plain = media_type.isascii() and media_type.isprintable() and "/" in media_type[1:-1]
    return media_type if plain and len(media_type) <= 255 else "application/octet-stream"


def excerpt_of(headers: list[tuple[str, str]], beginning: bytes, characters_max: int) -> str:
    """The beginning of a body, if it is text; else an empty string."""
    if not is_text(headers):
        return ""
    return beginning.decode("utf-8", "ignore")[:characters_max].strip()


def _kind_of_text(
    headers: list[tuple[str, str]], content_type: str
) -> Literal["json", "text"] | None:
    """The kind of text that the headers declare; None if it is compressed or not UTF-8 text."""
    media_type, _, parameters = content_type.lower().partition(";")
    media_type = media_type.strip()
    charset = _charset(parameters)
    compressed = any(name == "content-encoding" and value != "identity" for name, value in headers)
    if compressed or charset not in _UTF8_NAMES:
        return None
    if media_type == "application/json" or media_type.endswith("+json"):
        return "json"
    if media_type.startswith("text/") or media_type in _TEXT_TYPES or media_type.endswith("+xml"):
        return "text"
    return None


def _charset(parameters: str) -> str:
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip() == "charset":
            return value.strip().strip('"')
    return ""


def _is_json(body: bytes) -> bool:
    try:
        body.decode()
        msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return False
    return True


def _as_text(body: bytes) -> str | None:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


_CONNECT_SECONDS_MAX: Final = 10.0
_KEPT_CONNECTIONS_MAX: Final = 100
_KEPT_SECONDS: Final = 30.0
_EXCERPT_BYTES: Final = 4_096
_EXCERPT_CHARACTERS: Final = 500
_PROGRESS_STEP: Final = 0.01


class UpstreamExecutor:
    """Makes the calls to http upstreams. A context manager around the worker's whole run.

    >>> async with UpstreamExecutor(settings, database) as upstreams:
    ...     await Worker(settings, [docs, upstreams.service]).run()
    """

    def __init__(self, settings: Settings, database: Database, guard: Guard | None = None) -> None:
        self._guard = guard or guard_of(settings)
        self._secrets = ServiceSecrets(
            settings, database.pooled("secrets", server_settings=PINNED_PLANS)
        )
        self._temp_dir: Path = settings.temp_dir
        self._client: httpx2.AsyncClient | None = None
        self.service = Service(GATEWAY_SERVICE, product="gateway")

        @self.service.post("/http", timeout=TIMEOUT_SECONDS_MAX)
        async def http(
            job: Job, call: UpstreamCall | None = None, work: RemoteWork | None = None
        ) -> UpstreamAnswer:
            if work is not None:
                await job.hand_over(work)
            if call is None:
                job.fail("The job's payload has no call.", code=CoreFailure.INVALID_INPUT)
            return await unless_cancelled(job, self._call(job, call))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._client is not None:
            await self._client.aclose()
        await self._secrets.close()

    async def _own_headers(self, job: Job, call: UpstreamCall) -> Mapping[str, str]:
        """The registration's headers, decrypted for this call. Raises the attempt's outcome if that
        is not possible."""
        if not call.secrets_id:
            return {}
        try:
            secrets = await self._secrets.find(job.org, call.secrets_id)
        except CoatcheckError as error:
            raise secrets_failure(error) from error
        if not secrets.are_for_url(call.url):
            raise secrets_failure(
                SecretsLost("The secrets that the job names belong to another address.")
            )
        return secrets.values

    async def _call(self, job: Job, call: UpstreamCall) -> UpstreamAnswer:
        own_headers = await self._own_headers(job, call)
        with AnswerBody(self._temp_dir) as body:
            limit = asyncio.timeout(call.timeout_seconds)
            try:
                async with limit:
                    response = await self._send(job, call, own_headers)
                    try:
                        await _read_answer(job, response, body, own_headers)
                    finally:
                        await response.aclose()
            except TimeoutError:
                if limit.expired():
                    raise timed_out(call.timeout_seconds) from None
                raise
            headers = kept_headers(response.headers.raw)
            file = await body.end()
            if file is None:
                return inline_answer(response.status_code, headers, body.held())
            answer = artifact_answer(response.status_code, headers, body.size)
            await job.attach(ARTIFACT_NAME, file, media_type=storable_type(answer.media_type))
            return answer

    async def _send(
        self, job: Job, call: UpstreamCall, own_headers: Mapping[str, str]
    ) -> httpx2.Response:
        """Send the request; returns when the answer's headers have arrived."""
        if self._client is None:
            self._client = self._open()
        try:
            read_target(call.url, CALL_URL_CHARACTERS_MAX)
            request = self._client.build_request(
                call.method,
                call.url,
                headers=_request_headers(job, call, own_headers),
                content=call.body(),
                # The whole call has its own limit. Only connecting ends earlier: that costs no
                # attempt, and there may be other addresses to try.
                timeout=httpx2.Timeout(
                    None, connect=min(_CONNECT_SECONDS_MAX, call.timeout_seconds / 2)
                ),
                extensions=charged_to(job.org),
            )
            return await self._client.send(request, stream=True)
        except (
            httpx2.HTTPError,
            httpx2.InvalidURL,
            LookUpRefused,
            UrlForbidden,
            ValueError,
        ) as error:
            raise request_failure(error) from error

    def _open(self) -> httpx2.AsyncClient:
        return self._guard.client(
            limits=httpx2.Limits(
                max_connections=None,  # the lanes' concurrency bounds them
                max_keepalive_connections=_KEPT_CONNECTIONS_MAX,
                keepalive_expiry=_KEPT_SECONDS,
            )
        )


async def _read_answer(
    job: Job, response: httpx2.Response, body: AnswerBody, own_headers: Mapping[str, str]
) -> None:
    """Read a 2xx answer into ``body``; raise the outcome of any other."""
    if not response.is_success:
        excerpt = await _excerpt(response, texts_to_mask(own_headers))
        raise error_status(response.status_code, response.headers, excerpt)
    length = int(response.headers.get("content-length", 0))
    if length > ANSWER_BYTES_MAX and response.request.method != "HEAD":
        raise too_large(ANSWER_BYTES_MAX)
    shown = 0.0
    try:
        # Raw: a compressed body could expand to any size, so nothing is decompressed here.
        async for piece in response.aiter_raw():
            await body.add(piece)
            if length > ANSWER_INLINE_BYTES_MAX and body.size / length >= shown + _PROGRESS_STEP:
                shown = min(body.size / length, 1.0)
                await job.progress(shown, f"{body.size} of {length} bytes")
    except httpx2.HTTPError as error:
        raise incomplete_answer() from error


async def _excerpt(response: httpx2.Response, secrets: Sequence[str]) -> str:
    """The beginning of an error body, for the job's error message. ``secrets`` are masked, in case
    the upstream repeats what it was sent."""
    read = bytearray()
    # Half a secret would not be found and masked, so read enough for a whole one.
    bytes_max = _EXCERPT_BYTES + max(map(len, secrets), default=0)
    try:
        async for piece in response.aiter_raw():
            read += piece
            if len(read) >= bytes_max:
                break
    except httpx2.HTTPError:
        pass  # the status alone will do
    excerpt = excerpt_of(kept_headers(response.headers.raw), bytes(read), bytes_max)
    shown = without_secrets(excerpt, secrets)
    if len(read) >= bytes_max:
        # The text was cut, perhaps within a secret. Masking shortens the text, so that the cut
        # secret may have moved up.
        shown = shown[: len(shown) - max(map(len, secrets), default=0)]
    return shown[:_EXCERPT_CHARACTERS]


def _request_headers(
    job: Job, call: UpstreamCall, own_headers: Mapping[str, str]
) -> list[tuple[bytes, bytes]]:
    """The headers to send: the call's, the registration's, which replace the call's, and ours.

    Ours tell the upstream which job and attempt this is.
    """
    ours = {
        "user-agent": f"coatcheck/{__version__}",
        "x-request-id": job.request_id,
        "x-coatcheck-job-id": job.id,
        "x-coatcheck-attempt": str(job.attempt),
        "idempotency-key": job.id,
    }
    traceparent = tracing.current()
    own = {name.lower() for name in own_headers}
    sent = [(name, value) for name, value in call.headers if name.lower() not in own]
    sent += own_headers.items()
    if traceparent is not None:
        # The trace context of this run replaces that of the submission.
        sent = [(name, value) for name, value in sent if name.lower() != traceparents.HEADER]
        ours[traceparents.HEADER] = traceparent
    given = {name.lower() for name, _ in sent}
    added = [(name, value) for name, value in ours.items() if value and name not in given]
    # A compressed answer would have to be decompressed to be shown as JSON.
    headers = [*sent, *added, ("accept-encoding", "identity")]
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
