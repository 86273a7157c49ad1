"""Collecting: one job, all jobs, a job's events, the lines that were no tasks."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from coatcheck.domain.errors import InvalidParameter
from coatcheck.domain.ids import InvalidId, from_text
from coatcheck.domain.tenants import Scope
from coatcheck.http.event_stream import RECONNECT
from coatcheck.http.job_responses import (
    CONDITION_PARAMETERS,
    NOT_MODIFIED,
    RETRY_AFTER_HEADER,
    WAIT_PARAMETERS,
)
from coatcheck.http.parameters import read_whole_number
from coatcheck.http.request import Request
from coatcheck.http.response import Response, StreamResponse, json_response
from coatcheck.http.routing import ULID, Parameter, ResponseSpec, Route
from coatcheck.products.batches import presenter, schemas
from coatcheck.products.batches.context import (
    ALL_RUNS,
    PAGE_ROWS,
    PAGE_ROWS_MAX,
    BatchesContext,
    owner_of_list,
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
        self._following = BatchEventStream(context.engine, context.draining)

    async def page(self, request: Request) -> Response:
        """Jobs: all of the organisation's for an admin, else the caller's own."""
        principal = request.principal
        limit = read_limit(request)
        found = await self._context.batches.list(
            principal.org,
            owner=owner_of_list(principal),
            after=read_id_cursor(request),
            limit=limit,
        )
        items = [presenter.job(view) for view in found]
        return json_response(
            schemas.BatchPage(items, items[-1].id if len(items) == limit else None)
        )

    async def status(self, request: Request) -> Response:
        return await self._responses.status(request, await self._context.job(request))

    async def events(self, request: Request) -> StreamResponse:
        pieces = self._following.follow(await self._context.job(request))
        headers = [
            (b"content-type", b"text/event-stream"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),  # a proxy that collects events would hold them back
        ]
        return StreamResponse(HTTPStatus.OK, pieces, headers, RECONNECT)

    async def bad_lines(self, request: Request) -> Response:
        view = await self._context.job(request)
        run = run_of(view, request.query.get("run"))
        found, following = await self._context.batches.dead_letters.bad_lines(
            view, run, after=request.query.get("cursor"), limit=read_limit(request)
        )
        items = [schemas.BadLineItem(each.line, each.code, each.message) for each in found]
        return json_response(schemas.BadLinePage(items, following))


def read_limit(request: Request) -> int:
    return read_whole_number(request.query, "limit", 1, PAGE_ROWS_MAX, default=PAGE_ROWS)


def read_id_cursor(request: Request) -> str | None:
    """The cursor of a list that goes by ids."""
    given = request.query.get("cursor")
    if given is None:
        return None
    try:
        from_text(given)
    except InvalidId as error:
        raise InvalidParameter("cursor", "must be the `next` of a page") from error
    return given


def routes(context: BatchesContext, responses: BatchResponses) -> list[Route]:
    reading = BatchReadRoutes(context, responses)
    return [
        Route(
            methods=("GET",),
            path=JOBS,
            name="batches",
            summary="Jobs, newest first.",
            description="An admin sees all of the organisation's; others see their own.",
            handler=reading.page,
            access=Scope.READ,
            tag="batches",
            parameters=(CURSOR_OF_IDS, LIMIT),
            responses=(ResponseSpec(HTTPStatus.OK, "A page of jobs.", schemas.BatchPage),),
        ),
        Route(
            methods=("GET",),
            path=JOB,
            name="batch",
            summary="A job as it is, or once it has ended.",
            handler=reading.status,
            access=Scope.READ,
            tag="batches",
            parameters=(JOB_ID, *WAIT_PARAMETERS, *CONDITION_PARAMETERS),
            responses=(
                ResponseSpec(HTTPStatus.OK, "The job.", schemas.BatchJob, headers=_JOB_HEADERS),
                ResponseSpec(
                    HTTPStatus.ACCEPTED,
                    "The job has not ended within the time to wait.",
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
            description="Nothing of it is kept: whoever connects again is told how things are "
            "then.",
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
            summary="Invalid lines, and why.",
            handler=reading.bad_lines,
            access=Scope.READ,
            tag="batches",
            parameters=(JOB_ID, RUN, CURSOR, LIMIT),
            responses=(ResponseSpec(HTTPStatus.OK, "A page of lines.", schemas.BadLinePage),),
        ),
    ]


JOB_ID: Final = Parameter("id", "path", "The job's id.", ULID)
RUN: Final = Parameter("run", "query", "The run; without it the current one.", ULID)
RUN_OR_ALL: Final = Parameter(
    "run",
    "query",
    "The run; `all` for the job as a whole, each task with its latest result. Without it the "
    "current one.",
    {"anyOf": [ULID, {"type": "string", "enum": [ALL_RUNS]}]},
)
CURSOR_OF_IDS: Final = Parameter("cursor", "query", "The `next` of the page before.", ULID)
CURSOR: Final = Parameter("cursor", "query", "The `next` of the page before.")
LIMIT: Final = Parameter(
    "limit",
    "query",
    "How many to show.",
    {"type": "integer", "minimum": 1, "maximum": PAGE_ROWS_MAX, "default": PAGE_ROWS},
)
_JOB_HEADERS: Final = RETRY_AFTER_HEADER | {
    "ETag": "Changes with every state and count.",
    "Preference-Applied": "What was made of `Prefer`.",
}
_EVENTS: Final = ResponseSpec(
    HTTPStatus.OK,
    "Events `state`, `progress`, and `end`, after which the stream closes. `reconnect` says that "
    "this server cannot go on, and another can; or that the credential does not count any more.",
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
