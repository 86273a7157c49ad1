"""Having jobs stopped, or done again: one, or many at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from http import HTTPStatus
from typing import Final

from coatcheck.core import Ticket
from coatcheck.core.org_jobs import OrgJobRepository
from coatcheck.domain.errors import (
    CoatcheckError,
    FieldIssue,
    InvalidInput,
    JobNotEnded,
    NotRetryable,
)
from coatcheck.domain.org_jobs import LIVE, UNSUCCESSFUL, OrgJob, OrgJobFilter
from coatcheck.domain.states import State
from coatcheck.domain.tenants import Principal, Scope
from coatcheck.http.bodies import read_body
from coatcheck.http.job_adapters import RetryRequest
from coatcheck.http.job_responses import (
    IDEMPOTENCY_PARAMETERS,
    check_mismatch,
    etag,
    replay_headers,
)
from coatcheck.http.parameters import read_idempotency_key, read_preferences
from coatcheck.http.problems import MEDIA_TYPE, Problem, said_of
from coatcheck.http.request import Request
from coatcheck.http.response import Response, json_response
from coatcheck.http.routing import Parameter, RequestBody, ResponseSpec, Route
from coatcheck.products.console import schemas
from coatcheck.products.console.context import (
    JOB,
    JOBS,
    TAG,
    ConsoleContext,
    key_of_filtered,
    stored_key,
)
from coatcheck.products.console.filters import in_utc, read_states, wanted
from coatcheck.products.console.presenter import job_url
from coatcheck.products.console.read_routes import JOB_ID

_BODY_BYTES_MAX: Final = 64 * 1024
_AT_ONCE: Final = 8
"""How many jobs of one order are dealt with at a time."""
_PAGE_ROWS: Final = 200
_PAGES_IN_VAIN_MAX: Final = 20
"""How many pages without any job that fits an order turns over: each looks at thousands."""

Steer = Callable[[OrgJob], Awaitable[str | None]]
"""Does what an order says with one job; gives the id of the new one, if there is one."""


class OrgJobActionRoutes:
    """The routes that change jobs."""

    def __init__(self, context: ConsoleContext) -> None:
        self._context = context
        self.order = schemas.bulk_order([*context.adapters.all])

    async def cancel(self, request: Request) -> Response:
        """200 if the job is cancelled, 202 if it was told to stop."""
        context = self._context
        job = await context.job(request)
        await context.adapters.of(job).cancel(job)
        after = await context.engine.extension(OrgJobRepository).get(job.view.org, job.uuid)
        status = HTTPStatus.OK if after.view.terminal else HTTPStatus.ACCEPTED
        return json_response(
            await context.presenter.whole(after), status, [(b"etag", etag(after.view))]
        )

    async def retry(self, request: Request) -> Response:
        """202 with the new job; a known key answers the one that it made."""
        context, principal = self._context, request.principal
        preferences = read_preferences(request, in_query=False)
        said = read_idempotency_key(request)
        key = None if said is None else stored_key(principal, said)
        job = await context.job(request)
        knows = partial(context.engine.knows_key, org=principal.org)
        await context.gate.check_unless_known(principal, key, knows)
        ticket = await self._retried(job, principal, key, request.request_id)
        check_mismatch(ticket, preferences)
        new = await context.engine.extension(OrgJobRepository).get(principal.org, ticket.uuid)
        location = job_url(principal.org, new.id).encode("ascii")
        headers = [(b"location", location), *preferences.headers, *replay_headers(ticket)]
        return json_response(await context.presenter.whole(new), HTTPStatus.ACCEPTED, headers)

    async def many(self, request: Request) -> Response:
        """What came of each job; one that could not be helped keeps no other from it."""
        order = await read_body(request, self.order, _BODY_BYTES_MAX)
        if (order.ids is None) == (order.filter is None):
            raise InvalidInput([FieldIssue("ids", "either `ids` or `filter` must be given")])
        principal = request.principal
        if order.action == "retry":
            await self._context.gate.check_plan(principal)
        steer = self._steer(order, principal, request.request_id)
        if order.ids is not None:
            named = list(dict.fromkeys(order.ids))
            items = await _each(named, partial(self._by_id, principal, steer))
            return json_response(schemas.BulkAnswer(items, more=False))
        assert order.filter is not None
        found, more = await self._found(order.filter, order, principal)
        items = await _each(found, partial(_steered, steer))
        return json_response(schemas.BulkAnswer(items, more))

    def _steer(self, order: schemas.BulkOrder, principal: Principal, request_id: str) -> Steer:
        adapters, gate = self._context.adapters, self._context.gate

        async def cancel(job: OrgJob) -> None:
            await adapters.of(job).cancel(job)

        async def retry(job: OrgJob) -> str:
            # A filter leaves out what was retried. Two orders that come at once find the same jobs
            # all the same: then both are answered the one new job.
            key = None if order.filter is None else key_of_filtered(job)
            await gate.check_new_work(principal)
            return (await self._retried(job, principal, key, request_id)).id

        return cancel if order.action == "cancel" else retry

    async def _retried(
        self, job: OrgJob, principal: Principal, key: str | None, request_id: str
    ) -> Ticket:
        adapter = self._context.adapters.of(job)
        refusal = adapter.refusal(job)
        if refusal is not None:
            if not job.view.terminal:
                raise JobNotEnded("The job goes on.")
            raise NotRetryable(refusal)
        return await adapter.retry(job, RetryRequest(principal, key, request_id))

    async def _by_id(self, principal: Principal, steer: Steer, job_id: str) -> schemas.BulkItem:
        try:
            job = await self._context.find(principal, job_id)
        except CoatcheckError as error:
            return _failed(job_id, error)
        return await _steered(steer, job)

    async def _found(
        self, given: schemas.BulkFilter, order: schemas.BulkOrder, principal: Principal
    ) -> tuple[Sequence[OrgJob], bool]:
        """So many of the jobs that a filter is about, and whether there may be more.

        Those for which there is nothing to do are left out: else the same ones would be found again
        by an order that goes on where this one stops.
        """
        looked_for = self._wanted(given, order, principal)
        found: list[OrgJob] = []
        after = None
        in_vain = 0
        while len(found) < order.limit and in_vain < _PAGES_IN_VAIN_MAX:
            page = await self._context.engine.extension(OrgJobRepository).page(
                looked_for, after=after, limit=min(_PAGE_ROWS, order.limit - len(found))
            )
            found += page.items
            in_vain += not page.items
            after = page.following
            if after is None:
                break
        return found, after is not None

    def _wanted(
        self, given: schemas.BulkFilter, order: schemas.BulkOrder, principal: Principal
    ) -> OrgJobFilter:
        may_be = _RETRIED if order.action == "retry" else _CANCELLED
        asked = read_states(given.state, "body")
        return wanted(
            principal,
            self._context.adapters,
            states=[state for state in may_be if asked is None or state in asked],
            lane=given.lane,
            surface=given.surface,
            service=given.service,
            endpoint=given.endpoint,
            error_code=given.error_code,
            created_after=in_utc(given.created_after, "created_after", "body"),
            created_before=in_utc(given.created_before, "created_before", "body"),
            retryable=order.action == "retry",
        )


_RETRIED: Final = UNSUCCESSFUL
_CANCELLED: Final = tuple(state for state in LIVE if state is not State.CANCEL_REQUESTED)
"""The states of jobs with which an order does something."""


async def _each(
    subjects: Sequence[object], deal_with: Callable[..., Awaitable[schemas.BulkItem]]
) -> list[schemas.BulkItem]:
    """What came of each, in their order; a few at a time."""
    turns = asyncio.Semaphore(_AT_ONCE)

    async def one(subject: object) -> schemas.BulkItem:
        async with turns:
            return await deal_with(subject)

    return await asyncio.gather(*map(one, subjects))


async def _steered(steer: Steer, job: OrgJob) -> schemas.BulkItem:
    try:
        return schemas.BulkItem(job.id, True, await steer(job), None, None)
    except CoatcheckError as error:
        return _failed(job.id, error)


def _failed(job_id: str, error: CoatcheckError) -> schemas.BulkItem:
    return schemas.BulkItem(job_id, False, None, error.code, said_of(error))


def routes(context: ConsoleContext) -> list[Route]:
    steering = OrgJobActionRoutes(context)
    return [
        Route(
            methods=("POST",),
            path=f"{JOB}/cancel",
            name="cancel_org_job",
            summary="Ask for a job's end.",
            description="What a remote does for the job is cancelled there, too, if it can be.",
            handler=steering.cancel,
            access=Scope.SUBMIT,
            operable=True,
            tag=TAG,
            parameters=(JOB_ID,),
            responses=(
                ResponseSpec(HTTPStatus.OK, "It is cancelled.", schemas.OrgJobBody),
                ResponseSpec(
                    HTTPStatus.ACCEPTED, "It runs, and was told to stop.", schemas.OrgJobBody
                ),
                ResponseSpec(HTTPStatus.CONFLICT, "It has already ended.", Problem, MEDIA_TYPE),
            ),
        ),
        Route(
            methods=("POST",),
            path=f"{JOB}/retry",
            name="retry_org_job",
            summary="Have a job done again that failed or was cancelled: as a new job.",
            description="The new job has the same input, owner, lane, limits and webhooks; the old "
            "one stays as it is.",
            handler=steering.retry,
            access=Scope.SUBMIT,
            operable=True,
            tag=TAG,
            parameters=(
                JOB_ID,
                *IDEMPOTENCY_PARAMETERS,
                Parameter("Prefer", "header", "`handling=strict` (RFC 7240)."),
            ),
            responses=(
                ResponseSpec(
                    HTTPStatus.ACCEPTED,
                    "The new job is safe.",
                    schemas.OrgJobBody,
                    headers={
                        "Location": "The new job.",
                        "Idempotent-Replayed": "`true`: the key was known, no job was created.",
                        "Idempotency-Mismatch": "`true`: it was known for another job's retry.",
                    },
                ),
                ResponseSpec(
                    HTTPStatus.PAYMENT_REQUIRED,
                    "The organisation's plan is not active.",
                    Problem,
                    MEDIA_TYPE,
                ),
                ResponseSpec(
                    HTTPStatus.CONFLICT,
                    "It goes on (`job_not_ended`); or its input is gone (`input_not_kept`); or "
                    "jobs of its kind are done again otherwise (`not_retryable`), and the message "
                    "says how.",
                    Problem,
                    MEDIA_TYPE,
                ),
                ResponseSpec(
                    HTTPStatus.UNPROCESSABLE_ENTITY,
                    "The key is known for another job's retry, and the caller was strict.",
                    Problem,
                    MEDIA_TYPE,
                ),
            ),
        ),
        Route(
            methods=("POST",),
            path=f"{JOBS}/bulk",
            name="steer_org_jobs",
            summary="Cancel or retry many jobs at once.",
            description="Those of `ids`; or those that a `filter` finds, newest first, to `limit`. "
            "A filter leaves out jobs for which there is nothing to do, such as those that were "
            "retried already.",
            handler=steering.many,
            access=Scope.SUBMIT,
            operable=True,
            tag=TAG,
            body=RequestBody("What to do, with which jobs.", steering.order),
            responses=(
                ResponseSpec(HTTPStatus.OK, "What came of each.", schemas.BulkAnswer),
                ResponseSpec(
                    HTTPStatus.PAYMENT_REQUIRED,
                    "The organisation's plan is not active.",
                    Problem,
                    MEDIA_TYPE,
                ),
                ResponseSpec(
                    HTTPStatus.UNPROCESSABLE_ENTITY,
                    "The body does not fit; `details` says how.",
                    Problem,
                    MEDIA_TYPE,
                ),
            ),
        ),
    ]
