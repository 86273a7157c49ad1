"""The synchronous passthrough, as OpenAI's clients know it: the same jobs in other words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import msgspec

from coatcheck.domain.ids import from_text
from coatcheck.domain.lanes import Lane
from coatcheck.domain.states import State
from coatcheck.domain.tenants import Scope
from coatcheck.http.job_responses import IDEMPOTENCY_PARAMETERS, RESUME_PARAMETERS, resume_after
from coatcheck.http.parameters import read_preferences
from coatcheck.http.problems import problem
from coatcheck.http.request import Request
from coatcheck.http.response import RawHeaders, Response, StreamResponse, json_response
from coatcheck.http.routing import HoldsOpen, Parameter, RequestBody, ResponseSpec, Route
from coatcheck.products.llm.context import LlmContext
from coatcheck.products.llm.direct_client import TAGS, DirectClient, NoAnswer, spelled
from coatcheck.products.llm.model import LlmKind
from coatcheck.products.llm.openai.answers import ChatCompletion, Model, ModelList, model_list
from coatcheck.products.llm.openai.completions import TextCompletion, read_completion_order
from coatcheck.products.llm.openai.embeddings import EmbeddingList, read_embedding_order
from coatcheck.products.llm.openai.fields import Answering, CompletionOrder, Fields
from coatcheck.products.llm.openai.native import Untranslatable
from coatcheck.products.llm.openai.requests import read_order
from coatcheck.products.llm.openai.responses_answers import ResponseObject
from coatcheck.products.llm.openai.responses_requests import read_response_order
from coatcheck.products.llm.passthrough import (
    ACCEPTED,
    BROKEN,
    CHAT,
    JOB_HEADERS,
    MODEL_NAME,
    PREFER,
    REFUSALS,
    RETRY_COUNT,
    STREAMED,
    no_answer,
    ticket,
)
from coatcheck.products.llm.problem_formats import OPENAI
from coatcheck.products.llm.relay import LEAVE_IT, Relay, untranslatable
from coatcheck.products.llm.submit_routes import (
    NOT_CONFIGURED,
    PAYMENT,
    ChatSubmitter,
    SubmittedChat,
)


class OpenAIJobs:
    """A route that makes jobs: ``read`` makes orders of its requests."""

    def __init__(self, context: LlmContext, read: Callable[[Fields], CompletionOrder]) -> None:
        self._context = context
        self._read = read
        self._hand_in = ChatSubmitter(context)
        self._relay = Relay(context)

    async def create(self, request: Request) -> Response | StreamResponse:
        preferences = read_preferences(request, in_query=False)
        after = resume_after(request)
        handed_in, wanted = await self._handed_in(request)
        if preferences.respond_async:
            return await ticket(self._context, handed_in, wanted.kind, preferences)
        job = from_text(handed_in.ticket.id)
        headers = [*self._relay.headers(job), *handed_in.headers]
        if wanted.stream:
            framing = wanted.answering.framing(job, handed_in.model)
            after = 0 if handed_in.ticket.created else after
            response = await self._relay.stream(request, job, framing, headers, after=after)
            if (
                isinstance(response, StreamResponse)
                or response.status == HTTPStatus.SERVICE_UNAVAILABLE
            ):
                return response
            return _left(response)
        view = await self._relay.held(request, handed_in.ticket.id, preferences.wait)
        if view.state is State.COMPLETED:
            answer = await self._context.presenter.answer(view)
            try:
                whole = wanted.answering.whole(job, handed_in.model, answer)
                return json_response(whole, headers=headers)
            except Untranslatable as error:
                why = untranslatable(job, error)
                return _left(problem(request, HTTPStatus.BAD_GATEWAY, *why, headers=headers))
        if view.terminal:
            return _left(self._relay.failed(request, view, headers))
        if preferences.wait is not None:
            return await ticket(self._context, handed_in, wanted.kind, preferences)
        return await self._relay.drained(request, job, headers)

    async def _handed_in(self, request: Request) -> tuple[SubmittedChat, _Wanted]:
        """The job, and how to answer. The body is gone after this: its caller may wait for long."""
        async with self._hand_in.fields_of(request) as fields:
            order = self._read(fields)
            handed_in = await self._hand_in.chat(
                request,
                order.kind,
                order.fields,
                lane=Lane.URGENT,
                passthrough=True,
                turns=order.turns,
                image_urls=order.image_urls,
            )
        return handed_in, _Wanted(order.kind, order.answering, order.stream)


class _Wanted(NamedTuple):
    """How an answer is to be given."""

    kind: LlmKind
    answering: Answering
    stream: bool


def _left(response: Response) -> Response:
    """An answer that is no reason to make another job."""
    headers: RawHeaders = [*response.headers, LEAVE_IT]
    return Response(response.status, response.body, headers)


class Models:
    """GET /v1/models."""

    def __init__(self, context: LlmContext) -> None:
        self._context = context
        self._direct = DirectClient(context.settings.llm_targets)

    async def all(self, request: Request) -> Response:
        try:
            return json_response(await self._list())
        except NoAnswer as error:
            return no_answer(request, error)

    async def one(self, request: Request) -> Response:
        wanted = spelled(unquote(request.params["model"]))
        try:
            models = await self._list()
        except NoAnswer as error:
            return no_answer(request, error)
        for model in models.data:
            if spelled(model.id) == wanted:
                return json_response(model)
        return problem(
            request, HTTPStatus.NOT_FOUND, "model_not_found", "No target has a model of that name."
        )

    async def _list(self) -> ModelList:
        self._context.check_configured()
        return model_list(await self._direct.models(TAGS))


def routes(context: LlmContext) -> list[Route]:
    """The routes under /v1."""
    models = Models(context)
    return [
        _job_route(
            "/v1/chat/completions",
            "openai_chat",
            "Chat with a model, as with OpenAI.",
            OpenAIJobs(context, read_order),
            ChatCompletion,
            CHAT,
        ),
        _job_route(
            "/v1/completions",
            "openai_completion",
            "Have a prompt completed, as with OpenAI.",
            OpenAIJobs(context, read_completion_order),
            TextCompletion,
            _COMPLETION,
        ),
        _job_route(
            "/v1/responses",
            "openai_response",
            "Have a response made, as with OpenAI.",
            OpenAIJobs(context, read_response_order),
            ResponseObject,
            _RESPONSE,
        ),
        _job_route(
            "/v1/embeddings",
            "openai_embeddings",
            "Embed texts, as with OpenAI.",
            OpenAIJobs(context, read_embedding_order),
            EmbeddingList,
            _EMBEDDINGS,
            streams=False,
        ),
        Route(
            methods=("GET",),
            path="/v1/models",
            name="openai_models",
            summary="The models that any target has.",
            handler=models.all,
            access=Scope.READ,
            tag="llm",
            problem_format=OPENAI,
            responses=(
                ResponseSpec(HTTPStatus.OK, "The models.", ModelList),
                NOT_CONFIGURED,
                BROKEN,
            ),
        ),
        Route(
            methods=("GET",),
            path="/v1/models/{model:path}",
            name="openai_model",
            summary="A model that a target has.",
            handler=models.one,
            access=Scope.READ,
            tag="llm",
            problem_format=OPENAI,
            parameters=(Parameter("model", "path", "The model's name."),),
            responses=(ResponseSpec(HTTPStatus.OK, "The model.", Model), NOT_CONFIGURED, BROKEN),
        ),
    ]


def _job_route(
    path: str,
    name: str,
    summary: str,
    route: OpenAIJobs,
    body: type[msgspec.Struct],
    schema: Mapping[str, Any],
    *,
    streams: bool = True,
) -> Route:
    description = "A job like those of `POST /jobs`, whose answer is waited for"
    if streams:
        description += ': whole, or with `"stream": true` as it comes, as Server-Sent Events'
    return Route(
        methods=("POST",),
        path=path,
        name=name,
        summary=summary,
        description=f"{description}. What cannot be said in Ollama's words is refused.",
        handler=route.create,
        access=Scope.SUBMIT,
        tag="llm",
        parameters=(*IDEMPOTENCY_PARAMETERS, *RESUME_PARAMETERS, PREFER, RETRY_COUNT),
        body=RequestBody("What OpenAI takes.", schema=schema),
        held=HoldsOpen.UNLESS_ASYNC,
        problem_format=OPENAI,
        responses=(
            ResponseSpec(
                HTTPStatus.OK,
                "The answer, whole; or its parts." if streams else "The answer.",
                body,
                headers=JOB_HEADERS,
                also={"text/event-stream": _CHUNKS} if streams else {},
            ),
            ACCEPTED,
            PAYMENT,
            *REFUSALS,
        ),
    )


_TEXT: Final = {"type": "string", "minLength": 1}
_TEXTS: Final = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT, "minItems": 1}]}
_ITEMS: Final = {"type": "array", "items": {"type": "object"}, "minItems": 1}
_COMPLETION: Final = {
    "type": "object",
    "properties": STREAMED | {"prompt": _TEXTS},
    "required": ["model", "prompt"],
}
_RESPONSE: Final = {
    "type": "object",
    "properties": STREAMED | {"input": {"anyOf": [_TEXT, _ITEMS]}},
    "required": ["model", "input"],
}
_EMBEDDINGS: Final = {
    "type": "object",
    "properties": {
        "model": MODEL_NAME,
        "input": _TEXTS,
        "dimensions": {"type": ["integer", "null"], "minimum": 1},
        "encoding_format": {"enum": ["float", "base64", None]},
    },
    "required": ["model", "input"],
}
_CHUNKS: Final = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
    "description": "One event of the stream: a chunk, an error, or `[DONE]`.",
}
