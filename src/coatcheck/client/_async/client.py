"""The client: one method for each job operation of the API. And the job that they return."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import date
from os import PathLike
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Final, Literal, Self

import httpx2

from coatcheck.client._async.api_keys import PAGE_ITEMS, AsyncApiKeys
from coatcheck.client._async.batches import AsyncBatches
from coatcheck.client._async.exchange import AsyncExchange, follow
from coatcheck.client._async.files import AsyncFiles
from coatcheck.client._async.graphs import AsyncGraphs
from coatcheck.client._async.jobs import AsyncJobs
from coatcheck.client._async.webhooks import AsyncWebhooks
from coatcheck.client.addresses import Addresses, with_query
from coatcheck.client.answers import (
    BatchStatus,
    KeysetPage,
    Page,
    UsageDay,
    read,
    read_batch,
    read_object,
    read_page,
    read_result,
    read_ticket,
    read_usage,
)
from coatcheck.client.errors import ApiError, ConflictError, JobFailed, PermissionDeniedError
from coatcheck.client.events import AsyncEvents
from coatcheck.client.models import (
    Caller,
    JobArtifact,
    JobArtifacts,
    JobBody,
    JobUrls,
    Overview,
    job_urls,
)
from coatcheck.client.request_headers import (
    WAIT_SECONDS_MAX,
    Bearer,
    base_url_or_default,
    seconds,
    submission_headers,
    token_or_default,
)
from coatcheck.client.retries import Deadline, Polling, RetryPolicy
from coatcheck.encoding import encode
from coatcheck.tls import trusted_authorities

TIMEOUT_SECONDS: Final = 30.0
RETRIES: Final = 4
PAGE_JOBS: Final = 200
BATCH_JOBS_MAX: Final = 200
"""The maximum number of ids that the server accepts in one request."""


class AsyncClient:
    """Submits jobs to Coatcheck and collects their results. A context manager.

    ``base_url`` and ``token`` (an API key or a JWT) default to COATCHECK_URL (else
    http://127.0.0.1:8080) and COATCHECK_API_KEY. ``timeout`` is how many seconds the server may be
    silent, beyond the time it was asked to wait. ``retries`` is how often a request is sent again
    if the connection failed or the answer was 408, 429, 502, 503 or 504. ``http`` is your own HTTP
    client, for other certificates or proxies; you close it.

    Every method accepts a job or its id; an id also needs ``service``.

    ``jobs`` covers all jobs of the organisation, ``batches`` batches, which are jobs of many tasks,
    ``graphs`` graphs of code, ``webhooks`` webhooks, and ``api_keys`` API keys.
    """

    api_keys: AsyncApiKeys
    batches: AsyncBatches
    graphs: AsyncGraphs
    jobs: AsyncJobs
    webhooks: AsyncWebhooks

    def __init__(
        self,
        base_url: str | None = None,
        token: str | None = None,
        *,
        org: str = "default",
        timeout: float = TIMEOUT_SECONDS,
        retries: int = RETRIES,
        http: httpx2.AsyncClient | None = None,
    ) -> None:
        self._addresses = Addresses(base_url_or_default(base_url), org)
        credential = Bearer(token_or_default(token))
        policy = RetryPolicy(retries)
        self._owns_http = http is None
        http = http or httpx2.AsyncClient(verify=trusted_authorities())
        self._exchange = AsyncExchange(http, credential, timeout, policy)
        self._files = AsyncFiles(self._exchange)
        self.api_keys = AsyncApiKeys(self._exchange, self._addresses)
        self.batches = AsyncBatches(self._exchange, self._addresses)
        self.graphs = AsyncGraphs(self._exchange, self._addresses, self._files)
        self.jobs = AsyncJobs(self._exchange, self._addresses)
        self.webhooks = AsyncWebhooks(self._exchange, self._addresses)

    def __repr__(self) -> str:
        name, where = type(self).__name__, self._addresses
        return f"{name}({where.base_url!r}, org={where.org!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections, except those of your own ``http``."""
        if self._owns_http:
            await self._exchange.http.aclose()

    async def submit(
        self,
        service: str,
        path: str,
        payload: Any = None,
        *,
        version: int | None = None,
        method: str = "POST",
        lane: str | None = None,
        idempotency_key: str | None = None,
        delay: float | None = None,
        wait: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncJob:
        """Submit a job to an endpoint. When this returns, the job is durable.

        ``payload`` is anything that fits JSON, or bytes that are sent unchanged; without it the
        request has no body. ``path`` may have a query. Without an ``idempotency_key`` a new one is
        used, so that a retry cannot create a second job; pass your own if your program may end
        before it gets the answer. With ``delay`` the job starts that many seconds later, and is
        ``staged`` until then. With ``wait`` the server holds the answer until the job has ended,
        for at most that many seconds (at most 60): check ``terminal``.
        """
        url = self._addresses.submit(service, version, path)
        sent = submission_headers(
            method=method,
            lane=lane,
            idempotency_key=idempotency_key,
            wait=wait,
            delay=delay,
            given=headers,
            has_body=payload is not None,
        )
        response = await self._exchange.send(
            "POST", url, headers=sent, content=_content(payload), held=wait or 0.0
        )
        return self._job(read_object(response), response.headers)

    async def call(
        self,
        service: str,
        path: str,
        payload: Any = None,
        *,
        version: int | None = None,
        method: str = "POST",
        lane: str | None = None,
        idempotency_key: str | None = None,
        timeout: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Call an endpoint and return its result, however long it takes.

        The call is a job, too. If it takes longer than the server holds a call, the client keeps
        waiting for the job, for ``timeout`` seconds in total. Raises what ``wait`` raises.
        """
        deadline = Deadline(timeout)
        held = WAIT_SECONDS_MAX if timeout is None else min(timeout, WAIT_SECONDS_MAX)
        url = self._addresses.call(service, version, path)
        sent = submission_headers(
            method="POST",  # the request's own method is the call's
            lane=lane,
            idempotency_key=idempotency_key,
            wait=None if timeout is None else held,
            given=headers,
            has_body=payload is not None,
        )
        try:
            response = await self._exchange.send(
                method, url, headers=sent, content=_content(payload), held=held, deadline=deadline
            )
        except ApiError as error:
            if error.job_url is None:
                raise
            raise await self._failure(error, error.job_url) from None
        ticket = read_ticket(response)
        if ticket is None:
            return read_result(response)
        job = self._job(ticket, response.headers)
        return await self.result(job, None if timeout is None else deadline.remaining())

    async def get(self, job: AsyncJob | str, *, service: str | None = None) -> AsyncJob:
        """The current state of the job. Raises NotFoundError."""
        response = await self._exchange.send("GET", self._urls(job, service).poll)
        return self._learn(job, response)

    async def wait(
        self,
        job: AsyncJob | str,
        timeout: float | None = None,
        *,
        service: str | None = None,
        raise_on_failure: bool = True,
    ) -> AsyncJob:
        """Wait until the job has ended.

        The server holds each poll until the job has ended, so the end is known within
        milliseconds. Raises WaitTimeout after ``timeout`` seconds (None: never), and JobFailed
        if the job failed or was cancelled, unless ``raise_on_failure`` is false.
        """
        polling = Polling(timeout)
        poll = self._urls(job, service).poll
        while isinstance(job, str) or not (job.terminal and job.is_whole):
            held = polling.next_hold()
            url = with_query(poll, {"wait": seconds(held)})
            response = await self._exchange.send("GET", url, held=held, deadline=polling.deadline)
            job = self._learn(job, response)
            if job.terminal:
                break
            if pause := polling.pause(job):
                await self._exchange.pause(pause)
        if raise_on_failure and job.status != "completed":
            raise JobFailed(job)
        return job

    async def result(
        self, job: AsyncJob | str, timeout: float | None = None, *, service: str | None = None
    ) -> Any:
        """Wait for the job, and return its handler's value. Raises what ``wait`` raises."""
        return (await self.wait(job, timeout, service=service)).result

    def stream(
        self, job: AsyncJob | str, after: str | None = None, *, service: str | None = None
    ) -> AsyncEvents:
        """The job's events as they come: states, progress, log lines, output. Ends with the job.

        A broken connection is restored without loss or repetition. ``after`` is the ``id`` of the
        last event seen, to continue after it. If a job is passed, the states in the stream update
        it.
        """

        def learn(raw: Mapping[str, Any]) -> None:
            if isinstance(job, AsyncJob):
                job.learn(raw, None)

        return follow(self._exchange, self._urls(job, service).events, after, learn)

    async def artifacts(
        self, job: AsyncJob | str, *, service: str | None = None
    ) -> tuple[JobArtifact, ...]:
        """The files that the job produced, by name."""
        url = f"{self._urls(job, service).poll}/artifacts"
        return tuple(read(await self._exchange.send("GET", url), JobArtifacts).items)

    async def download(self, artifact: JobArtifact, path: str | PathLike[str]) -> Path:
        """Download a job's file to ``path``; it appears there when it is complete and checked.

        A broken connection is restored and the download resumes. The download uses the signed URL
        without the credential; after that has expired, call ``artifacts`` again.
        """
        url = self._addresses.signed(artifact.signed_url)
        return await self._files.download(url, Path(path), artifact.bytes, artifact.sha256)

    async def cancel(self, job: AsyncJob | str, *, service: str | None = None) -> AsyncJob:
        """Cancel the job, and return its state after that.

        A waiting job is ``cancelled`` at once; a running one is ``cancel_requested`` until its
        handler has stopped. Cancelling a cancelled job changes nothing. Raises ConflictError if the
        job has already ended in another way.
        """
        try:
            response = await self._exchange.send("POST", self._urls(job, service).cancel)
        except ConflictError:
            # A retry of a request that succeeded gets this answer, too.
            now = await self.get(job, service=service)
            if now.status != "cancelled":
                raise
            return now
        return self._learn(job, response)

    async def list(
        self,
        service: str,
        *,
        workspace: str = "default",
        status: str | None = None,
        lane: str | None = None,
        offset: int = 0,
        limit: int = 50,
    ) -> Page[AsyncJob]:
        """Your jobs of a service, newest first: ``limit`` of them (at most 200) from ``offset``.

        Their results are omitted; ``result(job)`` fetches them.
        """
        query = {"offset": offset, "limit": limit, "status": status, "lane": lane}
        url = with_query(self._addresses.jobs(service, workspace), query)
        response = await self._exchange.send("GET", url)
        return read_page(response, self._listed)

    async def list_all(
        self,
        service: str,
        *,
        workspace: str = "default",
        status: str | None = None,
        lane: str | None = None,
    ) -> AsyncIterator[AsyncJob]:
        """All your jobs of a service, newest first, fetched page by page."""
        query = {"limit": PAGE_JOBS, "status": status, "lane": lane}
        url: str | None = with_query(self._addresses.jobs(service, workspace), query)
        while url is not None:
            page = read_page(await self._exchange.send("GET", url), self._listed)
            for job in page.items:
                yield job
            url = with_query(url, {"cursor": page.next}) if page.next else None

    async def batch_status(
        self, service: str, job_ids: Iterable[str], *, workspace: str = "default"
    ) -> BatchStatus[AsyncJob]:
        """The states of many jobs by their ids, fetched two hundred at a time."""
        ids = tuple(job_ids)
        items: tuple[AsyncJob, ...] = ()
        not_found: tuple[str, ...] = ()
        for start in range(0, len(ids), BATCH_JOBS_MAX):
            query = {"job_ids": ",".join(ids[start : start + BATCH_JOBS_MAX])}
            url = with_query(f"{self._addresses.jobs(service, workspace)}/batch-status", query)
            batch = read_batch(await self._exchange.send("GET", url), self._job)
            items += batch.items
            not_found += batch.not_found
        return BatchStatus(items, not_found)

    async def usage(
        self,
        first_day: date | None = None,
        last_day: date | None = None,
        *,
        granularity: Literal["day", "hour"] = "day",
    ) -> tuple[UsageDay, ...]:
        """The organisation's usage by day and endpoint: of the last 30 days, unless given.

        Days are in UTC. The server returns at most 366. With ``granularity="hour"`` it is by hour
        and endpoint: of the last 2 days, unless given, and at most 31 days.
        """
        query = {
            "from": first_day,
            "to": last_day,
            "granularity": None if granularity == "day" else granularity,
        }
        response = await self._exchange.send("GET", with_query(self._addresses.usage(), query))
        return read_usage(response)

    async def me(self) -> Caller:
        """The user, organisation and scopes of the client's credential."""
        return read(await self._exchange.send("GET", self._addresses.me()), Caller)

    async def overview(self, minutes: int = 60, *, all_orgs: bool = False) -> Overview:
        """A summary of the organisation: the last ``minutes``, and the current queues.

        With ``all_orgs`` of all organisations and their workers, for operators.
        """
        where = self._addresses.operator("overview") if all_orgs else self._addresses.overview()
        response = await self._exchange.send("GET", with_query(where, {"minutes": minutes}))
        return read(response, Overview)

    async def services(self) -> AsyncIterator[Mapping[str, Any]]:
        """The services that the organisation can call, by name, each as the server's JSON: its
        versions, and the number of its endpoints. ``service`` returns the endpoints themselves."""
        page_url: str | None = with_query(self._addresses.services(), {"limit": PAGE_ITEMS})
        while page_url is not None:
            page = read(await self._exchange.send("GET", page_url), KeysetPage)
            for item in page.items:
                yield item
            page_url = with_query(page_url, {"cursor": page.next}) if page.next else None

    async def service(self, name: str, *, workspace: str = "default") -> Mapping[str, Any]:
        """A service as the server's JSON: its versions and their endpoints."""
        url = self._addresses.hosted_service(name, workspace)
        return read_object(await self._exchange.send("GET", url))

    async def _failure(self, refused: ApiError, job_url: str) -> ApiError | JobFailed:
        """The failure of the job that an error names, if this credential may read the job."""
        try:
            response = await self._exchange.send("GET", self._addresses.named(job_url))
        except PermissionDeniedError:
            return refused
        return JobFailed(self._job(read_object(response), response.headers))

    def _urls(self, job: AsyncJob | str, service: str | None) -> JobUrls:
        if isinstance(job, AsyncJob):
            return job.urls
        if service is None:
            raise ValueError("a job id needs service=...")
        return job_urls(self._addresses.job(service, job))

    def _learn(self, job: AsyncJob | str, response: httpx2.Response) -> AsyncJob:
        raw = read_object(response)
        if isinstance(job, str):
            return self._job(raw, response.headers)
        job.learn(raw, response.headers.get("etag"))
        return job

    def _job(
        self, raw: Mapping[str, Any], headers: Mapping[str, str] = MappingProxyType({})
    ) -> AsyncJob:
        return AsyncJob(self, raw, headers, self._addresses)

    def _listed(self, raw: Mapping[str, Any]) -> AsyncJob:
        return AsyncJob(self, raw, {}, self._addresses, is_listed=True)


def _content(payload: Any) -> bytes | None:
    return payload if payload is None or isinstance(payload, bytes) else encode(payload)


class AsyncJob(JobBody):
    """A job. Its methods call the server and update the job's own fields."""

    __slots__ = ("_client",)

    def __init__(
        self,
        client: AsyncClient,
        raw: Mapping[str, Any],
        headers: Mapping[str, str],
        addresses: Addresses,
        *,
        is_listed: bool = False,
    ) -> None:
        super().__init__(raw, headers, addresses, is_listed=is_listed)
        self._client = client

    async def refresh(self) -> Self:
        """Read the current state of the job."""
        await self._client.get(self)
        return self

    async def wait(self, timeout: float | None = None, *, raise_on_failure: bool = True) -> Self:
        """Wait until the job has ended. Raises JobFailed, WaitTimeout; see the client's wait."""
        await self._client.wait(self, timeout, raise_on_failure=raise_on_failure)
        return self

    async def cancel(self) -> Self:
        """Cancel the job. Raises ConflictError if it has already ended in another way."""
        await self._client.cancel(self)
        return self

    async def artifacts(self) -> tuple[JobArtifact, ...]:
        """The files that the job produced; the client's ``download`` fetches one."""
        return await self._client.artifacts(self)

    def stream(self, after: str | None = None) -> AsyncEvents:
        """The job's events as they come, until its end; see the client's stream."""
        return self._client.stream(self, after)
