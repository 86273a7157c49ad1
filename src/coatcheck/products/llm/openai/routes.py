"""The synchronous routes for OpenAI's clients: they submit the same jobs in OpenAI's formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import msgspec

from coatcheck.domain.ids import from_text
from coatcheck.domain.lanes import Lane
from coatcheck.domain.tenants import Scope
from coatcheck.http.job_resource import IDEMPOTENCY_PARAMETERS, PLAN_INACTIVE
from coatcheck.http.parameters import read_preferences
from coatcheck.http.problems import problem
from coatcheck.http.request import Request
from coatcheck.http.response import Response, StreamResponse, json_response
from coatcheck.http.routing import HoldsOpen, Parameter, RequestBody, ResponseSpec, Route
from coatcheck.http.watching import RESUME_PARAMETERS, resume_after
from coatcheck.products.llm.direct_client import TAGS, DirectClient, NoAnswer, canonical_name
from coatcheck.products.llm.jobs import LlmContext
from coatcheck.products.llm.model import LlmKind
from coatcheck.products.llm.openai.answers import ChatCompletion, Model, ModelList, model_list
from coatcheck.products.llm.openai.completions import TextCompletion, translate_completion
from coatcheck.products.llm.openai.embeddings import EmbeddingList, translate_embedding
from coatcheck.products.llm.openai.fields import AnswerTranslator, Fields, TranslatedRequest
from coatcheck.products.llm.openai.requests import translate_chat
from coatcheck.products.llm.openai.responses_answers import ResponseObject
from coatcheck.products.llm.openai.responses_requests import translate_response
from coatcheck.products.llm.passthrough import (
    ACCEPTED,
    CHAT,
    CHAT_ERRORS,
    JOB_HEADERS,
    MODEL_NAME,
    PREFER,
    RETRY_COUNT,
    STREAMED,
    TARGET_FAILED,
    SynchronousJobs,
    no_answer,
)
from coatcheck.products.llm.problem_formats import OPENAI
from coatcheck.products.llm.relay import NO_RETRY
from coatcheck.products.llm.submit_routes import NOT_CONFIGURED, SubmittedChat


class OpenAIJobs:
    """A route that submits jobs. ``read`` translates its requests."""

    def __init__(self, context: LlmContext, read: Callable[[Fields], TranslatedRequest]) -> None:
        self._read = read
        self._jobs = SynchronousJobs(context)

    async def create(self, request: Request) -> Response | StreamResponse:
        preferences = read_preferences(request, in_query=False)
        after = resume_after(request)
        submitted, options = await self._submit_chat(request)
        job, model, translator = from_text(submitted.ticket.id), submitted.model, options.translator
        response = await self._jobs.answer(
            request,
            submitted,
            options.kind,
            translator.framing(job, model) if options.stream else None,
            preferences=preferences,
            after=after,
            whole=lambda data, headers: json_response(
                translator.whole(job, model, data), headers=headers
            ),
        )
        if isinstance(response, Response) and response.status not in _MAY_RETRY:
            response.headers = [*response.headers, NO_RETRY]
        return response

    async def _submit_chat(self, request: Request) -> tuple[SubmittedChat, _AnswerOptions]:
        """The job, and how to answer. Frees the body, because the caller may wait long."""
        async with self._jobs.submitter.fields_of(request) as fields:
            translated = self._read(fields)
            submitted = await self._jobs.submitter.chat(
                request,
                translated.kind,
                translated.fields,
                lane=Lane.URGENT,
                passthrough=True,
                turns=translated.turns,
                image_urls=translated.image_urls,
            )
        return submitted, _AnswerOptions(translated.kind, translated.translator, translated.stream)


_MAY_RETRY: Final = (HTTPStatus.OK, HTTPStatus.ACCEPTED, HTTPStatus.SERVICE_UNAVAILABLE)
"""A client retries none of these but the last, which says itself whether it should."""


class _AnswerOptions(NamedTuple):
    """How to answer a request."""

    kind: LlmKind
    translator: AnswerTranslator
    stream: bool


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
        options = canonical_name(unquote(request.params["model"]))
        try:
            models = await self._list()
        except NoAnswer as error:
            return no_answer(request, error)
        for model in models.data:
            if canonical_name(model.id) == options:
                return json_response(model)
        return problem(
            request,
            HTTPStatus.NOT_FOUND,
            "model_not_found",
            "No target has a model with this name.",
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
            OpenAIJobs(context, translate_chat),
            ChatCompletion,
            CHAT,
        ),
        _job_route(
            "/v1/completions",
            "openai_completion",
            "Complete a prompt, as with OpenAI.",
            OpenAIJobs(context, translate_completion),
            TextCompletion,
            _COMPLETION,
        ),
        _job_route(
            "/v1/responses",
            "openai_response",
            "Create a response, as with OpenAI.",
            OpenAIJobs(context, translate_response),
            ResponseObject,
            _RESPONSE,
        ),
        _job_route(
            "/v1/embeddings",
            "openai_embeddings",
            "Embed texts, as with OpenAI.",
            OpenAIJobs(context, translate_embedding),
            EmbeddingList,
            _EMBEDDINGS,
            streams=False,
        ),
        Route(
            methods=("GET",),
            path="/v1/models",
            name="openai_models",
            summary="List the models of all targets.",
            handler=models.all,
            access=Scope.READ,
            tag="llm",
            problem_format=OPENAI,
            responses=(
                ResponseSpec(HTTPStatus.OK, "The models.", ModelList),
                NOT_CONFIGURED,
                TARGET_FAILED,
            ),
        ),
        Route(
            methods=("GET",),
            path="/v1/models/{model:path}",
            name="openai_model",
            summary="Describe a model.",
            handler=models.one,
            access=Scope.READ,
            tag="llm",
            problem_format=OPENAI,
            parameters=(Parameter("model", "path", "The model's name."),),
            responses=(
                ResponseSpec(HTTPStatus.OK, "The model.", Model),
                NOT_CONFIGURED,
                TARGET_FAILED,
            ),
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
    description = "Submits a job like `POST /jobs` and waits for its answer"
    if streams:
        description += ': whole, or with `"stream": true` as it comes, as Server-Sent Events'
    return Route(
        methods=("POST",),
        path=path,
        name=name,
        summary=summary,
        description=f"{description}. Fields that Ollama's API cannot express are rejected.",
        handler=route.create,
        access=Scope.SUBMIT,
        tag="llm",
        parameters=(*IDEMPOTENCY_PARAMETERS, *RESUME_PARAMETERS, PREFER, RETRY_COUNT),
        body=RequestBody("The request of OpenAI's API.", schema=schema),
        held=HoldsOpen.UNLESS_ASYNC,
        problem_format=OPENAI,
        responses=(
            ResponseSpec(
                HTTPStatus.OK,
                "The whole answer, or its parts." if streams else "The answer.",
                body,
                headers=JOB_HEADERS,
                also={"text/event-stream": _CHUNKS} if streams else {},
            ),
            ACCEPTED,
            PLAN_INACTIVE,
            *CHAT_ERRORS,
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
