"""Reads jobs: one of them, a list, a job's event stream, and its invalid lines."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from coatcheck.domain.tenants import Scope
from coatcheck.http.event_stream import RECONNECT
from coatcheck.http.job_responses import (
    CONDITION_PARAMETERS,
    NOT_MODIFIED,
    RETRY_AFTER_HEADER,
    WAIT_PARAMETERS,
)
from coatcheck.http.pages import (
    LIMIT,
    PAGE_PARAMETERS,
    cursor_parameter,
    read_limit,
    read_page,
)
from coatcheck.http.request import Request
from coatcheck.http.response import Response, StreamResponse, json_response
from coatcheck.http.routing import ULID, Parameter, ResponseSpec, Route
from coatcheck.products.batches import presenter, schemas
from coatcheck.products.batches.context import (
    ALL_RUNS,
    BatchesContext,
    run_of,
)
from coatcheck.products.batches.presenter import JOBS
from coatcheck.products.batches.responses import BatchEventStream, BatchResponses

JOB: Final = JOBS + "/{id}"


class BatchReadRoutes:
    """The routes that show jobs."""

    def __init__(self, context: BatchesContext, responses: BatchResponses) -> None:
        self._context = context
        self._responses = responses
        self._event_stream = BatchEventStream(context.engine, context.draining)

    async def page(self, request: Request) -> Response:
        """List jobs: all of the organisation's for an admin, the caller's own for others."""
        principal = request.principal
        asked = read_page(request)
        found = await self._context.batches.list(
            principal.org,
            owner=principal.lists_jobs_of,
            after=asked.after_id,
            limit=asked.limit,
        )
        items = [presenter.job(view) for view in found]
        return json_response(schemas.BatchPage(items, asked.following(items, lambda item: item.id)))

    async def status(self, request: Request) -> Response:
        return await self._responses.status(request, await self._context.job(request))

    async def events(self, request: Request) -> StreamResponse:
        pieces = self._event_stream.follow(await self._context.job(request))
        headers = [
            (b"content-type", b"text/event-stream"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),  # a proxy that buffers the response would delay events
        ]
        return StreamResponse(HTTPStatus.OK, pieces, headers, RECONNECT)

    async def bad_lines(self, request: Request) -> Response:
        view = await self._context.job(request)
        run = run_of(view, request.query.get("run"))
        found, following = await self._context.batches.dead_letters.bad_lines(
            view, run, after=request.query.get("cursor"), limit=read_limit(request.query)
        )
        items = [schemas.BadLineItem(each.line, each.code, each.message) for each in found]
        return json_response(schemas.BadLinePage(items, following))


def routes(context: BatchesContext, responses: BatchResponses) -> list[Route]:
    reading = BatchReadRoutes(context, responses)
    return [
        Route(
            methods=("GET",),
            path=JOBS,
            name="batches",
            summary="Jobs, newest first.",
            description="An admin sees all jobs of the organisation; others see their own.",
            handler=reading.page,
            access=Scope.READ,
            tag="batches",
            parameters=PAGE_PARAMETERS,
            responses=(ResponseSpec(HTTPStatus.OK, "A page of jobs.", schemas.BatchPage),),
        ),
        Route(
            methods=("GET",),
            path=JOB,
            name="batch",
            summary="Read a job now, or wait for its end.",
            handler=reading.status,
            access=Scope.READ,
            tag="batches",
            parameters=(JOB_ID, *WAIT_PARAMETERS, *CONDITION_PARAMETERS),
            responses=(
                ResponseSpec(HTTPStatus.OK, "The job.", schemas.BatchJob, headers=_JOB_HEADERS),
                ResponseSpec(
                    HTTPStatus.ACCEPTED,
                    "The job did not end within the time to wait.",
                    schemas.BatchJob,
                    headers=_JOB_HEADERS,
                ),
                NOT_MODIFIED,
            ),
        ),
        Route(
            methods=("GET",),
            path=f"{JOB}/events",
            name="batch_events",
            summary="A job's states and counts, as they come.",
            description="Events are not stored: a new connection starts with the job's state at "
            "that time.",
            handler=reading.events,
            access=Scope.READ,
            tag="batches",
            parameters=(JOB_ID,),
            responses=(_EVENTS,),
        ),
        Route(
            methods=("GET",),
            path=f"{JOB}/bad-lines",
            name="batch_bad_lines",
            summary="The invalid lines of a run's lists, each with its error.",
            handler=reading.bad_lines,
            access=Scope.READ,
            tag="batches",
            parameters=(JOB_ID, RUN, cursor_parameter(ANY_CURSOR), LIMIT),
            responses=(ResponseSpec(HTTPStatus.OK, "A page of lines.", schemas.BadLinePage),),
        ),
    ]


JOB_ID: Final = Parameter("id", "path", "The job's id.", ULID)
RUN: Final = Parameter("run", "query", "The run; by default the current one.", ULID)
RUN_OR_ALL: Final = Parameter(
    "run",
    "query",
    "The run, or `all` for the job as a whole, each task with its latest result. By default the "
    "current run.",
    {"anyOf": [ULID, {"type": "string", "enum": [ALL_RUNS]}]},
)
ANY_CURSOR: Final = {"type": "string"}
"""The cursors of lists that are not sorted by id."""
_JOB_HEADERS: Final = RETRY_AFTER_HEADER | {
    "ETag": "Changes with every state and count.",
    "Preference-Applied": "Which preferences of `Prefer` were applied.",
}
_EVENTS: Final = ResponseSpec(
    HTTPStatus.OK,
    "Events `state`, `progress`, and `end`, after which the stream closes. `reconnect` says that "
    "this server cannot continue and another can, or that the credential is no longer valid.",
    media_type="text/event-stream",
    schema={
        "description": "One event of the stream.",
        "type": "object",
        "properties": {
            "event": {"enum": ["state", "progress", "end", "reconnect"]},
            "data": {"type": "string", "contentMediaType": "application/json"},
            "retry": {"type": "integer"},
        },
    },
)
