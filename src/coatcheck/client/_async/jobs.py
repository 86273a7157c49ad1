"""The client's API for all jobs of an organisation: find, explain, cancel, retry."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from datetime import datetime
from typing import Final, Literal

from coatcheck.client._async.exchange import AsyncExchange, follow
from coatcheck.client.addresses import Addresses, with_query
from coatcheck.client.answers import KeysetPage, read, read_object
from coatcheck.client.batch_request import job_filter
from coatcheck.client.errors import ConflictError, JobFailed
from coatcheck.client.events import AsyncEvents
from coatcheck.client.models import (
    BulkOutcomes,
    JobDetails,
    JobDetailsPage,
    JobExplanation,
    JobLogEntry,
    LogAnswer,
    TimelineAnswer,
    TimelineEntry,
    job_details,
)
from coatcheck.client.request_headers import JSON_HEADERS, seconds, submission_headers
from coatcheck.client.retries import Polling
from coatcheck.encoding import encode

PAGE_ITEMS: Final = 200
"""How long the server holds one long-poll: less than most proxies allow."""


class AsyncJobs:
    """All jobs of the organisation: ``client.jobs``.

    These are your own jobs and those that anyone may see; with the scope ``admin``, everybody's.
    Every method accepts a job or its id.
    """

    def __init__(self, exchange: AsyncExchange, addresses: Addresses) -> None:
        self._exchange = exchange
        self._addresses = addresses

    async def list(
        self,
        *,
        state: str | Iterable[str] | None = None,
        lane: str | None = None,
        surface: str | None = None,
        service: str | None = None,
        endpoint: str | None = None,
        owner: str | None = None,
        error_code: str | None = None,
        q: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> JobDetailsPage:
        """A page of jobs, newest first, without their results; at most 200.

        ``state`` is one or several of the engine's states, ``live`` or ``ended``. ``q`` finds a job
        by its id, its idempotency key or its request id. Tasks of batches are not listed.
        """
        query = job_filter(
            state=state,
            lane=lane,
            surface=surface,
            service=service,
            endpoint=endpoint,
            error_code=error_code,
            created_after=created_after,
            created_before=created_before,
            owner=owner,
            q=q,
            cursor=cursor,
            limit=limit,
        )
        url = with_query(self._addresses.org_jobs(), query)
        page = read(await self._exchange.send("GET", url), KeysetPage)
        return JobDetailsPage(tuple(job_details(item) for item in page.items), page.next)

    async def list_all(
        self,
        *,
        state: str | Iterable[str] | None = None,
        lane: str | None = None,
        surface: str | None = None,
        service: str | None = None,
        endpoint: str | None = None,
        owner: str | None = None,
        error_code: str | None = None,
        q: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
    ) -> AsyncIterator[JobDetails]:
        """All matching jobs, fetched page by page."""
        cursor: str | None = None
        while True:
            page = await self.list(
                state=state,
                lane=lane,
                surface=surface,
                service=service,
                endpoint=endpoint,
                owner=owner,
                error_code=error_code,
                q=q,
                created_after=created_after,
                created_before=created_before,
                cursor=cursor,
                limit=PAGE_ITEMS,
            )
            for job in page.items:
                yield job
            if page.next is None:
                return
            cursor = page.next

    async def get(self, job: JobDetails | str) -> JobDetails:
        """The current state of the job, with its result. Raises NotFoundError."""
        return job_details(read_object(await self._exchange.send("GET", self._url(job))))

    async def wait(
        self, job: JobDetails | str, timeout: float | None = None, *, raise_on_failure: bool = True
    ) -> JobDetails:
        """Wait until the job has ended; the server holds each poll until then.

        Raises WaitTimeout after ``timeout`` seconds (None: never), and JobFailed if the job failed
        or was cancelled, unless ``raise_on_failure`` is false.
        """
        polling = Polling(timeout)
        while True:
            held = polling.next_hold()
            url = with_query(self._url(job), {"wait": seconds(held)})
            response = await self._exchange.send("GET", url, held=held, deadline=polling.deadline)
            job = job_details(read_object(response))
            if job.terminal:
                break
            if pause := polling.pause(job):
                await self._exchange.pause(pause)
        if raise_on_failure and job.state != "completed":
            raise JobFailed(job)
        return job

    async def explain(self, job: JobDetails | str) -> JobExplanation:
        """Why the job is in its state, and when that will probably change."""
        response = await self._exchange.send("GET", self._url(job, "explain"))
        return read(response, JobExplanation)

    async def timeline(self, job: JobDetails | str) -> tuple[TimelineEntry, ...]:
        """What has happened to the job, oldest first."""
        response = await self._exchange.send("GET", self._url(job, "timeline"))
        return read(response, TimelineAnswer).items

    async def log(
        self, job: JobDetails | str, after: int | None = None
    ) -> AsyncIterator[JobLogEntry]:
        """The job's log lines so far, oldest first, fetched page by page.

        ``after`` is the ``seq`` of the last line seen. ``stream`` follows the job instead.
        """
        cursor: int | str | None = after
        while True:
            query = {"after": cursor, "limit": PAGE_ITEMS}
            url = with_query(self._url(job, "log"), query)
            page = read(await self._exchange.send("GET", url), LogAnswer)
            for entry in page.items:
                yield entry
            if page.next is None:
                return
            cursor = page.next

    async def input(self, job: JobDetails | str) -> bytes:
        """The job's input as JSON; it is kept until the job has completed.

        Raises ConflictError if it is not kept.
        """
        return (await self._exchange.send("GET", self._url(job, "input"))).content

    def stream(self, job: JobDetails | str, after: str | None = None) -> AsyncEvents:
        """The job's events as they come, until its end. ``data`` of a state is the job's JSON.

        A broken connection is restored without loss or repetition. ``after`` is the ``id`` of the
        last event seen, to continue after it.
        """
        return follow(self._exchange, self._url(job, "events"), after, lambda _: None)

    def changes(self, after: str | None = None) -> AsyncEvents:
        """All jobs as they change, endlessly: events ``job``, whose ``data`` is a job's JSON.

        Starts with the jobs that have not ended. A broken connection is restored without loss or
        repetition. ``after`` is the ``id`` of the last event seen, to continue after it.
        """
        return follow(self._exchange, f"{self._addresses.org_jobs()}/events", after, lambda _: None)

    async def cancel(self, job: JobDetails | str) -> JobDetails:
        """Cancel the job, and return its state after that.

        Cancelling a cancelled job changes nothing. Raises ConflictError if it ended in another way.
        """
        try:
            response = await self._exchange.send("POST", self._url(job, "cancel"))
        except ConflictError:
            # A retry of a request that succeeded gets this answer, too.
            now = await self.get(job)
            if now.state != "cancelled":
                raise
            return now
        return job_details(read_object(response))

    async def retry(
        self, job: JobDetails | str, *, idempotency_key: str | None = None
    ) -> JobDetails:
        """Submit a new job with the same input, and return it.

        Raises ConflictError if the job has not ended, or its input is not kept. Without an
        ``idempotency_key`` a new one is used, so that only one job is created.
        """
        headers = submission_headers(
            method="POST",
            lane=None,
            idempotency_key=idempotency_key,
            wait=None,
            given=None,
            has_body=False,
        )
        response = await self._exchange.send("POST", self._url(job, "retry"), headers=headers)
        return job_details(read_object(response))

    async def bulk(
        self,
        action: Literal["cancel", "retry"],
        ids: Iterable[str] | None = None,
        *,
        state: str | Iterable[str] | None = None,
        lane: str | None = None,
        surface: str | None = None,
        service: str | None = None,
        endpoint: str | None = None,
        error_code: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        limit: int | None = None,
    ) -> BulkOutcomes:
        """Cancel or retry many jobs: those of ``ids``, at most 200, or ``limit`` that match.

        Each is handled by itself, and the answer has the outcome of each. If the answer to a retry
        is lost, the request is not sent again.
        """
        filters = job_filter(
            state=state,
            lane=lane,
            surface=surface,
            service=service,
            endpoint=endpoint,
            error_code=error_code,
            created_after=created_after,
            created_before=created_before,
        )
        body: dict[str, object] = {"action": action}
        if ids is not None:
            if filters or limit is not None:
                raise ValueError("give either ids, or a filter and its limit")
            body["ids"] = [*ids]
        else:
            body["filter"] = filters
            if limit is not None:
                body["limit"] = limit
        response = await self._exchange.send(
            "POST",
            f"{self._addresses.org_jobs()}/bulk",
            headers=JSON_HEADERS,
            content=encode(body),
            repeatable=action == "cancel",
        )
        return read(response, BulkOutcomes)

    def _url(self, job: JobDetails | str, what: str | None = None) -> str:
        url = self._addresses.org_job(job if isinstance(job, str) else job.id)
        return url if what is None else f"{url}/{what}"
