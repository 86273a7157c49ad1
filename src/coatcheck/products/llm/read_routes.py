"""Routes that read chats: one job, a page of jobs, its events, its files; and cancel it."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from coatcheck.domain.errors import InvalidParameter
from coatcheck.domain.tenants import Scope
from coatcheck.http.artifacts import OwnedJobs, artifact_routes
from coatcheck.http.context import ServerContext
from coatcheck.http.explanations import explain_route
from coatcheck.http.job_responses import (
    CONDITION_PARAMETERS,
    EVENTS,
    NOT_MODIFIED,
    RESUME_PARAMETERS,
    RETRY_AFTER_HEADER,
    WAIT_PARAMETERS,
)
from coatcheck.http.pages import PAGE_PARAMETERS, read_page
from coatcheck.http.parameters import read_choice
from coatcheck.http.problems import MEDIA_TYPE, Problem
from coatcheck.http.request import Request
from coatcheck.http.response import Response, StreamResponse, json_response
from coatcheck.http.routing import ULID, Parameter, ResponseSpec, Route
from coatcheck.products.llm import schemas
from coatcheck.products.llm.context import LlmContext
from coatcheck.products.llm.model import (
    LLM_ENDPOINTS,
    LLM_KINDS,
    MODEL_NAME_CHARACTERS_MAX,
    model_name,
)
from coatcheck.products.llm.presenter import JOBS, shows_artifacts


def file_routes(server: ServerContext, context: LlmContext) -> list[Route]:
    finder = OwnedJobs(
        context.engine,
        context.job,
        lambda job_id: context.presenter.urls(job_id).poll,
        LLM_KINDS,
        shows=shows_artifacts,
    )
    return artifact_routes(
        server,
        finder,
        path=f"{JOBS}/{{id}}",
        name="chat",
        tag="llm",
        parameters=(Parameter("id", "path", "The job's id.", ULID),),
    )


JOB: Final = JOBS + "/{id}"


class ChatReadRoutes:
    """The handlers of these routes."""

    def __init__(self, context: LlmContext) -> None:
        self._context = context

    async def status(self, request: Request) -> Response | StreamResponse:
        context = self._context
        look = await context.responses.snapshot(request, await context.job(request))
        headers = context.responses.snapshot_headers(look)
        if look.is_known:
            return Response(HTTPStatus.NOT_MODIFIED, b"", headers)
        return await context.presenter.response(look.view, headers, look.status)

    async def events(self, request: Request) -> StreamResponse:
        context = self._context
        return await context.responses.events(
            request, await context.job(request), context.presenter
        )

    async def explain(self, request: Request) -> Response:
        return await self._context.responses.explained(request, await self._context.job(request))

    async def cancel(self, request: Request) -> Response:
        context = self._context
        return await context.responses.cancel(await context.job(request), context.presenter)

    async def page(self, request: Request) -> Response:
        """The caller's jobs; for an admin, all of the organisation's."""
        context, principal, query = self._context, request.principal, request.query
        asked = read_page(request)
        choice = read_choice(query, "state", list(schemas.LlmState))
        requested = None if choice is None else schemas.LlmState(choice)
        model = _model(query.get("model"))
        page = await context.engine.page(
            org=principal.org,
            endpoints=list(LLM_ENDPOINTS.values()),
            queue_key_prefix=model,
            states=None if requested is None else schemas.ENGINE_STATES[requested],
            owner=principal.lists_jobs_of,
            after=asked.after_id,
            limit=asked.limit,
        )
        shown = [await context.presenter.item(view) for view in page.items]
        items = [
            item
            for item in shown
            # A claimed job is `queued` or `loading`: its row does not say which.
            if (requested is None or item.state is requested)
            # One model's name may begin with another's.
            and (model is None or item.model == model)
        ]
        following = asked.following(shown, lambda item: item.job_id)
        return json_response(schemas.ChatJobPage(items, following))


def _model(given: str | None) -> str | None:
    if given is None:
        return None
    try:
        return model_name(given)
    except InvalidParameter as error:
        raise InvalidParameter(error.field, error.issue) from None


def routes(context: LlmContext) -> list[Route]:
    chats = ChatReadRoutes(context)
    job_id = Parameter("id", "path", "The job's id.", ULID)
    return [
        Route(
            methods=("GET",),
            path=JOBS,
            name="chats",
            summary="Jobs, newest first.",
            description="An admin sees all jobs of the organisation; others see their own.",
            handler=chats.page,
            access=Scope.READ,
            tag="llm",
            parameters=_PAGE_PARAMETERS,
            responses=(ResponseSpec(HTTPStatus.OK, "A page of jobs.", schemas.ChatJobPage),),
        ),
        Route(
            methods=("GET",),
            path=JOB,
            name="chat",
            summary="Read a job now, or wait until it has ended.",
            handler=chats.status,
            access=Scope.READ,
            tag="llm",
            parameters=(job_id, *WAIT_PARAMETERS, *CONDITION_PARAMETERS),
            responses=(
                ResponseSpec(HTTPStatus.OK, "The job.", schemas.ChatJob, headers=_JOB_HEADERS),
                ResponseSpec(
                    HTTPStatus.ACCEPTED,
                    "The job did not end within the time to wait.",
                    schemas.ChatJob,
                    headers=_JOB_HEADERS,
                ),
                NOT_MODIFIED,
            ),
        ),
        Route(
            methods=("GET",),
            path=f"{JOB}/events",
            name="chat_events",
            summary="Stream a job's states and output.",
            description="Each `chunk` is one object of the target's stream, unchanged. The chunk "
            '`{"coatcheck": {"restarted": true, ...}}` says that the job starts again: all chunks '
            "before it are void.",
            handler=chats.events,
            access=Scope.READ,
            tag="llm",
            parameters=(job_id, *RESUME_PARAMETERS),
            responses=(EVENTS,),
        ),
        explain_route(JOB, "explain_chat", chats.explain, tag="llm", parameters=(job_id,)),
        Route(
            methods=("POST",),
            path=f"{JOB}/cancel",
            name="cancel_chat",
            summary="Cancel a job.",
            handler=chats.cancel,
            access=Scope.SUBMIT,
            tag="llm",
            parameters=(job_id,),
            responses=(
                ResponseSpec(HTTPStatus.OK, "The job is cancelled.", schemas.ChatJob),
                ResponseSpec(HTTPStatus.ACCEPTED, "The job is being cancelled.", schemas.ChatJob),
                ResponseSpec(HTTPStatus.CONFLICT, "The job has ended.", Problem, MEDIA_TYPE),
            ),
        ),
    ]


_JOB_HEADERS: Final = RETRY_AFTER_HEADER | {
    "ETag": "Changes with every state.",
    "Preference-Applied": "The preferences of `Prefer` that were applied.",
}
_PAGE_PARAMETERS: Final = (
    *PAGE_PARAMETERS,
    Parameter(
        "state",
        "query",
        "Only jobs in this state.",
        {"type": "string", "enum": list(schemas.LlmState)},
    ),
    Parameter(
        "model",
        "query",
        "Only jobs for this model.",
        {"type": "string", "minLength": 1, "maxLength": MODEL_NAME_CHARACTERS_MAX},
    ),
)
