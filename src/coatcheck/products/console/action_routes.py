"""Routes that retry a job, and that cancel or retry many at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Final

from coatcheck.core import Ticket
from coatcheck.domain.errors import (
    CoatcheckError,
    FieldIssue,
    InvalidInput,
    JobNotEnded,
    NotRetryable,
)
from coatcheck.domain.listing import PAGE_ROWS_MAX, PageQuery
from coatcheck.domain.org_jobs import LIVE, UNSUCCESSFUL, OrgJob, OrgJobFilter
from coatcheck.domain.states import State
from coatcheck.domain.tenants import Principal, Scope
from coatcheck.http.bodies import read_body
from coatcheck.http.job_adapters import RetryRequest
from coatcheck.http.job_resource import (
    IDEMPOTENCY_PARAMETERS,
    PLAN_INACTIVE,
    check_mismatch,
    replay_headers,
)
from coatcheck.http.parameters import in_utc, read_idempotency_key, read_preferences
from coatcheck.http.problems import public_detail
from coatcheck.http.request import Request
from coatcheck.http.response import Response, json_response
from coatcheck.http.routing import Parameter, RequestBody, ResponseSpec, Route
from coatcheck.products.console import schemas
from coatcheck.products.console.jobs import (
    JOB,
    JOB_ID,
    JOBS,
    TAG,
    OrgJobs,
    job_url,
    key_of_filtered,
)
from coatcheck.products.console.list_routes import job_filter, read_states

_BODY_BYTES_MAX: Final = 64 * 1024
_CONCURRENCY: Final = 8
"""The number of jobs of one bulk request that are processed at a time."""
_EMPTY_PAGES_MAX: Final = 20
"""The number of pages without a match after which a bulk request stops: each scans thousands."""

Action = Callable[[OrgJob], Awaitable[str | None]]
"""Cancels or retries one job; returns the id of the new job, if there is one."""


class OrgJobActionRoutes:
    """The routes that retry a job, or change many."""

    def __init__(self, jobs: OrgJobs) -> None:
        self._jobs = jobs
        self.order = schemas.bulk_order([*jobs.adapters.all])

    async def retry(self, request: Request) -> Response:
        """202 with the new job; a known key returns the job that it created."""
        jobs, principal = self._jobs, request.principal
        preferences = read_preferences(request, in_query=False)
        given_key = read_idempotency_key(request)
        key = None if given_key is None else jobs.retry_key(principal, given_key)
        job = await jobs.job_of(request)
        await jobs.check_new_work(request, key)
        ticket = await self._retried(job, principal, key, request.request_id)
        check_mismatch(ticket, preferences)
        new = await jobs.repository.get(principal.org, ticket.uuid)
        location = job_url(principal.org, new.id).encode("ascii")
        headers = [(b"location", location), *preferences.headers, *replay_headers(ticket)]
        return json_response(await jobs.presenter.whole(new), HTTPStatus.ACCEPTED, headers)

    async def many(self, request: Request) -> Response:
        """Cancel or retry many jobs. Each has its own result; a failure does not stop the rest."""
        order = await read_body(request, self.order, _BODY_BYTES_MAX)
        if (order.ids is None) == (order.filter is None):
            raise InvalidInput([FieldIssue("ids", "either `ids` or `filter` must be given")])
        principal = request.principal
        if order.action == "retry":
            await self._jobs.gate.check_plan(principal)
        action = self._action(order, principal, request.request_id)
        if order.ids is not None:
            named = list(dict.fromkeys(order.ids))
            items = await _each(named, partial(self._by_id, principal, action))
            return json_response(schemas.BulkAnswer(items, more=False))
        assert order.filter is not None
        found, more = await self._found(order.filter, order, principal)
        items = await _each(found, partial(_applied, action))
        return json_response(schemas.BulkAnswer(items, more))

    def _action(self, order: schemas.BulkOrder, principal: Principal, request_id: str) -> Action:
        adapters, gate = self._jobs.adapters, self._jobs.gate

        async def cancel(job: OrgJob) -> None:
            await adapters.of(job).cancel(job.view)

        async def retry(job: OrgJob) -> str:
            # A filter leaves out jobs that were retried already. But two concurrent requests find
            # the same jobs: the key makes both return the same new job.
            key = None if order.filter is None else key_of_filtered(job)
            await gate.check_new_work(principal)
            return (await self._retried(job, principal, key, request_id)).id

        return cancel if order.action == "cancel" else retry

    async def _retried(
        self, job: OrgJob, principal: Principal, key: str | None, request_id: str
    ) -> Ticket:
        adapter = self._jobs.adapters.of(job)
        refusal = adapter.refusal(job)
        if refusal is not None:
            if not job.view.terminal:
                raise JobNotEnded("The job has not ended.")
            raise NotRetryable(refusal)
        return await adapter.retry(job, RetryRequest(principal, key, request_id))

    async def _by_id(self, principal: Principal, action: Action, job_id: str) -> schemas.BulkItem:
        try:
            job = await self._jobs.find_id(principal, job_id)
        except CoatcheckError as error:
            return _failed(job_id, error)
        return await _applied(action, job)

    async def _found(
        self, given: schemas.BulkFilter, order: schemas.BulkOrder, principal: Principal
    ) -> tuple[Sequence[OrgJob], bool]:
        """The jobs that match a filter, up to the limit, and whether there may be more.

        Jobs that need no action are left out. Otherwise a repeated request, which continues after
        this one, would find the same jobs again.
        """
        job_filter = self._job_filter(given, order, principal)
        asked = PageQuery(
            created_after=in_utc(given.created_after, "created_after", "body"),
            created_before=in_utc(given.created_before, "created_before", "body"),
        )
        found: list[OrgJob] = []
        empty_pages = 0
        while len(found) < order.limit and empty_pages < _EMPTY_PAGES_MAX:
            asked = replace(asked, limit=min(PAGE_ROWS_MAX, order.limit - len(found)))
            page = await self._jobs.repository.page(job_filter, asked)
            found += page.items
            empty_pages += not page.items
            if page.following is None:
                return found, False
            asked = replace(asked, after=page.following)
        return found, True

    def _job_filter(
        self, given: schemas.BulkFilter, order: schemas.BulkOrder, principal: Principal
    ) -> OrgJobFilter:
        eligible = _RETRYABLE if order.action == "retry" else _CANCELLABLE
        requested = read_states(given.state, "body")
        return job_filter(
            principal,
            self._jobs.adapters,
            states=[state for state in eligible if requested is None or state in requested],
            lane=given.lane,
            surface=given.surface,
            service=given.service,
            endpoint=given.endpoint,
            error_code=given.error_code,
            retryable=order.action == "retry",
        )


_RETRYABLE: Final = UNSUCCESSFUL
_CANCELLABLE: Final = tuple(state for state in LIVE if state is not State.CANCEL_REQUESTED)
"""The states of jobs that a bulk request with a filter cancels."""


async def _each(
    subjects: Sequence[object], process: Callable[..., Awaitable[schemas.BulkItem]]
) -> list[schemas.BulkItem]:
    """The results in the order of the subjects; a few are processed at a time."""
    slots = asyncio.Semaphore(_CONCURRENCY)

    async def one(subject: object) -> schemas.BulkItem:
        async with slots:
            return await process(subject)

    return await asyncio.gather(*map(one, subjects))


async def _applied(action: Action, job: OrgJob) -> schemas.BulkItem:
    try:
        return schemas.BulkItem(job.id, True, await action(job), None, None)
    except CoatcheckError as error:
        return _failed(job.id, error)


def _failed(job_id: str, error: CoatcheckError) -> schemas.BulkItem:
    return schemas.BulkItem(job_id, False, None, error.code, public_detail(error))


def routes(jobs: OrgJobs) -> list[Route]:
    actions = OrgJobActionRoutes(jobs)
    route = partial(Route, access=Scope.SUBMIT, operable=True, tag=TAG)
    return [
        route(
            methods=("POST",),
            path=f"{JOB}/retry",
            name="retry_org_job",
            summary="Retry a failed or cancelled job as a new job.",
            description="The new job has the same input, owner, lane, limits and webhooks; the old "
            "job does not change.",
            handler=actions.retry,
            parameters=(
                JOB_ID,
                *IDEMPOTENCY_PARAMETERS,
                Parameter("Prefer", "header", "`handling=strict` (RFC 7240)."),
            ),
            responses=(
                ResponseSpec(
                    HTTPStatus.ACCEPTED,
                    "The new job is stored.",
                    schemas.OrgJobBody,
                    headers={
                        "Location": "The URL of the new job.",
                        "Idempotent-Replayed": "`true`: the key was known, no job was created.",
                        "Idempotency-Mismatch": "`true`: the key was used to retry another job.",
                    },
                ),
                PLAN_INACTIVE,
                ResponseSpec.problem(
                    HTTPStatus.CONFLICT,
                    "The job has not ended (`job_not_ended`); or its input was deleted "
                    "(`input_not_kept`); or jobs of its kind are not retried here "
                    "(`not_retryable`), and the message says what to do instead.",
                ),
                ResponseSpec.problem(
                    HTTPStatus.UNPROCESSABLE_ENTITY,
                    "The key was used to retry another job, and the caller asked for strict "
                    "handling.",
                ),
            ),
        ),
        route(
            methods=("POST",),
            path=f"{JOBS}/bulk",
            name="steer_org_jobs",
            summary="Cancel or retry many jobs at once.",
            description="The jobs of `ids`; or those that a `filter` finds, newest first, up to "
            "`limit`. A filter leaves out jobs that need no action, such as those that were "
            "retried already.",
            handler=actions.many,
            body=RequestBody("The action, and the jobs.", actions.order),
            responses=(
                ResponseSpec(HTTPStatus.OK, "The result for each job.", schemas.BulkAnswer),
                PLAN_INACTIVE,
                ResponseSpec.problem(
                    HTTPStatus.UNPROCESSABLE_ENTITY, "The body is not valid; `details` says why."
                ),
            ),
        ),
    ]
