"""The built-in service that calls http upstreams, for a worker to serve beside its own.

What a remote is to do comes to the same endpoint, and is handed over. Every call goes through the
egress guard. One client, with its connections, serves all jobs of the process; it opens with the
first call and closes with the executor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import httpx2

from coatcheck.core.service_secrets import ServiceSecrets
from coatcheck.core.upstream_calls import (
    ANSWER_BYTES_MAX,
    ANSWER_INLINE_BYTES_MAX,
    ARTIFACT_NAME,
    CALL_URL_CHARACTERS_MAX,
    UpstreamAnswer,
    UpstreamCall,
)
from coatcheck.core.upstream_headers import kept_headers
from coatcheck.domain.catalogue import GATEWAY_SERVICE
from coatcheck.domain.errors import CoatcheckError, LookUpRefused, SecretsLost, UrlForbidden
from coatcheck.domain.remote_work import RemoteWork
from coatcheck.domain.service_definition import TIMEOUT_SECONDS_MAX
from coatcheck.domain.target_secrets import texts_to_mask
from coatcheck.egress import Guard, charged_to, guard_of
from coatcheck.egress.urls import read_target
from coatcheck.job import Job
from coatcheck.products.gateway import upstream_outcomes as outcomes
from coatcheck.products.gateway.upstream_body import (
    AnswerBody,
    artifact_answer,
    excerpt_of,
    inline_answer,
    storable_type,
)
from coatcheck.remotes.error_text import without_secrets
from coatcheck.service import Service
from coatcheck.settings import Settings
from coatcheck.telemetry import traceparents, tracing
from coatcheck.version import __version__
from coatcheck.worker.cancellation import unless_cancelled

_CONNECT_SECONDS_MAX: Final = 10.0
_KEPT_CONNECTIONS_MAX: Final = 100
_KEPT_SECONDS: Final = 30.0
_EXCERPT_BYTES: Final = 4_096
_EXCERPT_CHARACTERS: Final = 500
_PROGRESS_STEP: Final = 0.01


class UpstreamExecutor:
    """Makes the calls of http upstreams. A context manager, around the worker's whole run.

    >>> async with UpstreamExecutor(settings) as upstreams:
    ...     await Worker(settings, [docs, upstreams.service]).run()
    """

    def __init__(self, settings: Settings, guard: Guard | None = None) -> None:
        self._guard = guard or guard_of(settings)
        self._secrets = ServiceSecrets(settings)
        self._temp_dir: Path = settings.temp_dir
        self._client: httpx2.AsyncClient | None = None
        self.service = Service(GATEWAY_SERVICE, _builtin=True)

        @self.service.post("/http", timeout=TIMEOUT_SECONDS_MAX)
        async def http(
            job: Job, call: UpstreamCall | None = None, work: RemoteWork | None = None
        ) -> UpstreamAnswer:
            if work is not None:
                await job.hand_over(work)
            if call is None:
                job.fail("There is nothing to call.", code="invalid_input")
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
        """The registration's headers, opened for this call. Raises what becomes of the attempt if
        that is not possible."""
        if not call.secrets_id:
            return {}
        try:
            secrets = await self._secrets.find(job.org, call.secrets_id)
        except CoatcheckError as error:
            raise outcomes.no_secrets(error) from error
        if not secrets.are_for_url(call.url):
            raise outcomes.no_secrets(
                SecretsLost("The secrets that the job names were given for another address.")
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
                        await _take_in(job, response, body, own_headers)
                    finally:
                        await response.aclose()
            except TimeoutError:
                if limit.expired():
                    raise outcomes.timed_out(call.timeout_seconds) from None
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
        """The upstream's answer up to its headers."""
        if self._client is None:
            self._client = self._open()
        try:
            read_target(call.url, CALL_URL_CHARACTERS_MAX)
            request = self._client.build_request(
                call.method,
                call.url,
                headers=_request_headers(job, call, own_headers),
                content=call.body(),
                # The whole call has its own limit. Only to connect ends earlier: it costs no
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
            raise outcomes.no_answer(error) from error

    def _open(self) -> httpx2.AsyncClient:
        return self._guard.client(
            limits=httpx2.Limits(
                max_connections=None,  # the lanes' concurrency bounds them
                max_keepalive_connections=_KEPT_CONNECTIONS_MAX,
                keepalive_expiry=_KEPT_SECONDS,
            )
        )


async def _take_in(
    job: Job, response: httpx2.Response, body: AnswerBody, own_headers: Mapping[str, str]
) -> None:
    """Read a 2xx answer into ``body``; raise what any other means for the job."""
    if not response.is_success:
        excerpt = await _excerpt(response, texts_to_mask(own_headers))
        raise outcomes.refusal(response.status_code, response.headers, excerpt)
    length = int(response.headers.get("content-length", 0))
    if length > ANSWER_BYTES_MAX and response.request.method != "HEAD":
        raise outcomes.too_large(ANSWER_BYTES_MAX)
    shown = 0.0
    try:
        # Raw: nothing is unpacked here, whose size nobody knows beforehand.
        async for piece in response.aiter_raw():
            await body.add(piece)
            if length > ANSWER_INLINE_BYTES_MAX and body.size / length >= shown + _PROGRESS_STEP:
                shown = min(body.size / length, 1.0)
                await job.progress(shown, f"{body.size} of {length} bytes")
    except httpx2.HTTPError as error:
        raise outcomes.broke_off() from error


async def _excerpt(response: httpx2.Response, secrets: Sequence[str]) -> str:
    """The beginning of an error's text, for whoever reads why the job failed. Should it repeat what
    it was sent, then without ``secrets``."""
    read = bytearray()
    # Half a secret would not be found.
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
        # It was cut, perhaps within a secret, and what is left of that may have moved up.
        shown = shown[: len(shown) - max(map(len, secrets), default=0)]
    return shown[:_EXCERPT_CHARACTERS]


def _request_headers(
    job: Job, call: UpstreamCall, own_headers: Mapping[str, str]
) -> list[tuple[bytes, bytes]]:
    """The call's headers, the registration's, which win over them, and what tells the upstream
    which job and attempt this is."""
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
        # The run's own, in place of what the submission came with.
        sent = [(name, value) for name, value in sent if name.lower() != traceparents.HEADER]
        ours[traceparents.HEADER] = traceparent
    given = {name.lower() for name, _ in sent}
    added = [(name, value) for name, value in ours.items() if value and name not in given]
    # Compressed answers would have to be unpacked to be shown as JSON.
    headers = [*sent, *added, ("accept-encoding", "identity")]
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
