"""The synchronous passthrough, as Ollama's clients know it: change the base URL, and it works.

A chat is handed in as a job like any other, in the lane of those who wait; the handler relays what
the job says. What needs no job goes straight to the targets.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec

from coatcheck.domain.errors import RetryLater, TargetUnreachable
from coatcheck.domain.ids import from_text
from coatcheck.domain.lanes import Lane
from coatcheck.domain.states import State
from coatcheck.domain.tenants import Scope
from coatcheck.http.job_responses import (
    IDEMPOTENCY_PARAMETERS,
    RESUME_PARAMETERS,
    TICKET_HEADERS,
    resume_after,
)
from coatcheck.http.parameters import Preferences, read_preferences
from coatcheck.http.problems import MEDIA_TYPE, Problem, problem
from coatcheck.http.request import Request
from coatcheck.http.response import JSON, Response, StreamResponse, json_response
from coatcheck.http.routing import HoldsOpen, Parameter, RequestBody, ResponseSpec, Route
from coatcheck.http.upload_limits import UploadRoom
from coatcheck.products.llm import chat_requests, schemas
from coatcheck.products.llm.context import LARGE_BODIES_MAX, LARGE_BODIES_OF_ONE_ORG_MAX, LlmContext
from coatcheck.products.llm.direct_client import TAGS, DirectClient, NoAnswer
from coatcheck.products.llm.model import LLM_ENDPOINTS, LlmKind
from coatcheck.products.llm.problem_formats import OLLAMA
from coatcheck.products.llm.relay import FAILURES, RETRY_AFTER_SECONDS, Relay, job_id_header
from coatcheck.products.llm.submit_routes import (
    NOT_CONFIGURED,
    PAYMENT,
    ChatSubmitter,
    SubmittedChat,
)

NDJSON: Final = b"application/x-ndjson"
_PS: Final = "/api/ps"
_VERSION: Final = "/api/version"
_SHOW: Final = "/api/show"
_EMBED: Final = "/api/embed"
_EMBEDDINGS: Final = "/api/embeddings"
_encode: Final = msgspec.json.Encoder().encode


class Ndjson:
    """A stream as Ollama writes it: the target's objects as they are, one on each line."""

    media_type = NDJSON

    def output(self, _: int | None, data: bytes) -> bytes:
        return data + b"\n"

    def begin_again(self) -> None:
        """Each object is written as it is, whatever came before it."""

    def idle(self) -> bytes:
        # White space before the next object: clients take an empty line for a broken one.
        return b" "

    def error(self, _: HTTPStatus, __: str, message: str) -> bytes:
        return _encode({"error": message}) + b"\n"

    def end(self) -> bytes:
        return b""


class Passthrough:
    """The routes that make jobs."""

    def __init__(self, context: LlmContext) -> None:
        self._context = context
        self._hand_in = ChatSubmitter(context)
        self._relay = Relay(context)

    async def chat(self, request: Request) -> Response | StreamResponse:
        return await self._answer(request, "chat")

    async def generate(self, request: Request) -> Response | StreamResponse:
        return await self._answer(request, "generate")

    async def _answer(self, request: Request, kind: LlmKind) -> Response | StreamResponse:
        preferences = read_preferences(request, in_query=False)
        after = resume_after(request)
        handed_in, streams = await self._handed_in(request, kind)
        if preferences.respond_async:
            return await ticket(self._context, handed_in, kind, preferences)
        job = from_text(handed_in.ticket.id)
        headers = [*self._relay.headers(job), *handed_in.headers]
        if streams:
            after = 0 if handed_in.ticket.created else after
            return await self._relay.stream(request, job, Ndjson(), headers, after=after)
        view = await self._relay.held(request, handed_in.ticket.id, preferences.wait)
        if view.state is State.COMPLETED:
            return Response(
                HTTPStatus.OK, await self._context.presenter.answer(view), [JSON, *headers]
            )
        if view.terminal:
            return self._relay.failed(request, view, headers)
        if preferences.wait is not None:
            return await ticket(self._context, handed_in, kind, preferences)
        return await self._relay.drained(request, job, headers)

    async def _handed_in(self, request: Request, kind: LlmKind) -> tuple[SubmittedChat, bool]:
        """The job, and whether its answer is to be streamed. The body is gone after this: its
        caller may wait for long."""
        async with self._hand_in.fields_of(request) as fields:
            streams = chat_requests.read_stream(fields) is not False
            handed_in = await self._hand_in.chat(
                request, kind, fields, lane=Lane.URGENT, passthrough=True
            )
        return handed_in, streams


async def ticket(
    context: LlmContext, handed_in: SubmittedChat, kind: LlmKind, preferences: Preferences
) -> Response | StreamResponse:
    """202, for a caller who does not wait, or not any longer."""
    response = await context.responses.submitted(
        handed_in.ticket,
        context.presenter,
        kind=LLM_ENDPOINTS[kind],
        lane=Lane.URGENT,
        preferences=preferences,
    )
    response.headers = [*response.headers, job_id_header(handed_in.ticket.id)]
    return response


class DirectRoutes:
    """The routes that make none."""

    def __init__(self, context: LlmContext) -> None:
        self._context = context
        self._direct = DirectClient(context.settings.llm_targets)
        # Of its own: what is asked straight keeps its body until a target has answered.
        self._room = UploadRoom(LARGE_BODIES_MAX, LARGE_BODIES_OF_ONE_ORG_MAX)

    async def tags(self, request: Request) -> Response:
        return await self._models(request, TAGS)

    async def ps(self, request: Request) -> Response:
        return await self._models(request, _PS)

    async def version(self, request: Request) -> Response:
        self._context.check_configured()
        try:
            told = await self._direct.first(_VERSION)
        except NoAnswer as error:
            return no_answer(request, error)
        return Response(HTTPStatus.OK, told.body, [JSON])

    async def show(self, request: Request) -> Response:
        return await self._ask(request, _SHOW)

    async def embed(self, request: Request) -> Response:
        await self._context.gate.check_plan(request.principal)
        return await self._ask(request, _EMBED)

    async def embeddings(self, request: Request) -> Response:
        await self._context.gate.check_plan(request.principal)
        return await self._ask(request, _EMBEDDINGS)

    async def _models(self, request: Request, path: str) -> Response:
        self._context.check_configured()
        try:
            return json_response({"models": await self._direct.models(path)})
        except NoAnswer as error:
            return no_answer(request, error)

    async def _ask(self, request: Request, path: str) -> Response:
        self._context.check_configured()
        try:
            async with chat_requests.fields_of(request, self._room) as fields:
                model = chat_requests.read_model(_with_model(fields))
                told = await self._direct.ask(path, model, _encode(fields))
        except NoAnswer as error:
            return no_answer(request, error)
        return Response(HTTPStatus.OK, told.body, [JSON])


def _with_model(fields: chat_requests.Fields) -> chat_requests.Fields:
    """Ollama's older clients say ``name``."""
    if "name" in fields and chat_requests.MODEL not in fields:
        return {chat_requests.MODEL: fields["name"]}
    return fields


def no_answer(request: Request, error: NoAnswer) -> Response:
    """The answer to a caller for whom no target could be asked, or none could say what they want.

    503 if it is worth trying again; what the target made of the request itself; else 502.
    """
    signal = error.signal
    after: float | None = RETRY_AFTER_SECONDS
    match signal:
        case TargetUnreachable():
            status, code = HTTPStatus.SERVICE_UNAVAILABLE, "target_unreachable"
        case RetryLater(code="target_busy"):
            status, code = HTTPStatus.SERVICE_UNAVAILABLE, signal.code
            after = signal.after or after
        case _:
            code = getattr(signal, "code", "target_error")
            status, after = FAILURES.get(code, HTTPStatus.BAD_GATEWAY), None
    headers = [] if after is None else [(b"retry-after", b"%d" % max(1, round(after)))]
    return problem(request, status, code, str(signal), headers=headers)


def routes(context: LlmContext) -> list[Route]:
    """The routes under /api."""
    passing, direct = Passthrough(context), DirectRoutes(context)
    return [
        _making(
            "/api/chat",
            "ollama_chat",
            "Chat with a model, as with Ollama.",
            passing.chat,
            CHAT,
        ),
        _making(
            "/api/generate",
            "ollama_generate",
            "Have a model complete a prompt, as with Ollama.",
            passing.generate,
            _GENERATION,
        ),
        _looking(TAGS, "ollama_tags", "The models that any target has.", direct.tags, _MODELS),
        _looking(_PS, "ollama_ps", "The models that any target has loaded.", direct.ps, _MODELS),
        _looking(
            _VERSION, "ollama_version", "The version of the first target.", direct.version, _ANY
        ),
        _asking(_SHOW, "ollama_show", "What a model is.", direct.show, Scope.READ),
        _asking(_EMBED, "ollama_embed", "Embed texts.", direct.embed, Scope.SUBMIT),
        _asking(
            _EMBEDDINGS,
            "ollama_embeddings",
            "Embed a text, as older clients ask for it.",
            direct.embeddings,
            Scope.SUBMIT,
        ),
    ]


def _making(path: str, name: str, summary: str, handler: Any, body: Mapping[str, Any]) -> Route:
    return Route(
        methods=("POST",),
        path=path,
        name=name,
        summary=summary,
        description="A job like those of `POST /jobs`, whose answer is waited for: NDJSON as it "
        'comes, or whole with `"stream": false`. Every field reaches the target as it is.',
        handler=handler,
        access=Scope.SUBMIT,
        tag="llm",
        parameters=(*IDEMPOTENCY_PARAMETERS, *RESUME_PARAMETERS, PREFER, RETRY_COUNT),
        body=RequestBody("What Ollama takes.", schema=body),
        problem_format=OLLAMA,
        responses=(
            ResponseSpec(
                HTTPStatus.OK,
                "The target's objects, one on each line; or its whole answer.",
                media_type=NDJSON.decode(),
                schema=_ANY,
                also={"application/json": _ANY},
                headers=JOB_HEADERS,
            ),
            ACCEPTED,
            PAYMENT,
            *REFUSALS,
        ),
    )


def _looking(path: str, name: str, summary: str, handler: Any, schema: Mapping[str, Any]) -> Route:
    return Route(
        methods=("GET",),
        path=path,
        name=name,
        summary=summary,
        handler=handler,
        access=Scope.READ,
        tag="llm",
        problem_format=OLLAMA,
        responses=(
            ResponseSpec(HTTPStatus.OK, "As Ollama says it.", schema=schema),
            NOT_CONFIGURED,
            BROKEN,
        ),
    )


def _asking(path: str, name: str, summary: str, handler: Any, access: Scope) -> Route:
    return Route(
        methods=("POST",),
        path=path,
        name=name,
        summary=summary,
        handler=handler,
        access=access,
        tag="llm",
        body=RequestBody("What Ollama takes.", schema=_WITH_MODEL),
        held=HoldsOpen.ALWAYS,
        problem_format=OLLAMA,
        responses=(
            ResponseSpec(HTTPStatus.OK, "As Ollama says it.", schema=_ANY),
            PAYMENT,
            NOT_CONFIGURED,
            BROKEN,
            _UNFIT,
        ),
    )


_ANY: Final = {"type": "object"}
_MODELS: Final = {
    "type": "object",
    "properties": {"models": {"type": "array", "items": {"type": "object"}}},
    "required": ["models"],
}
MODEL_NAME: Final = {"type": "string", "minLength": 1, "maxLength": 200}
_WITH_MODEL: Final = {"type": "object", "properties": {"model": MODEL_NAME}}
STREAMED: Final = {
    "model": MODEL_NAME,
    "stream": {"type": ["boolean", "null"]},
}
CHAT: Final = {
    "type": "object",
    "properties": STREAMED | {"messages": {"type": ["array", "null"], "items": {"type": "object"}}},
    "required": ["model"],
}
_GENERATION: Final = {
    "type": "object",
    "properties": STREAMED | {"prompt": {"type": ["string", "null"]}},
    "required": ["model"],
}
PREFER: Final = Parameter(
    "Prefer",
    "header",
    "`respond-async`: 202 with a ticket; `wait=N`: the same after N seconds (at most 60), if the "
    "answer does not stream; `handling=strict` (RFC 7240).",
)
RETRY_COUNT: Final = Parameter(
    "x-stainless-retry-count",
    "header",
    "How often the client has sent the request before. Above 0 it joins the job of the request "
    "before it, if nobody waits for that any more.",
)
JOB_HEADERS: Final = {
    "X-Job-Id": "The id of the job.",
    "Location": "Where to ask for the job.",
    "Link": "Where to follow it (`events`), cancel it (`cancel`), find its files (`artifacts`).",
    "Idempotent-Replayed": "`true`: the idempotency key was known, no job was created.",
    "Idempotency-Mismatch": "`true`: it was known with another payload.",
    "X-Job-Joined": "`true`: the request is a retry, and was joined to the job of an earlier one.",
}
ACCEPTED: Final = ResponseSpec(
    HTTPStatus.ACCEPTED,
    "The job is safe, and was not waited for (any longer).",
    schemas.ChatTicket,
    headers=TICKET_HEADERS | {"X-Job-Id": "The id of the job."},
)
BROKEN: Final = ResponseSpec(
    HTTPStatus.BAD_GATEWAY, "The target failed; `code` says how.", Problem, MEDIA_TYPE
)
_UNFIT: Final = ResponseSpec(
    HTTPStatus.UNPROCESSABLE_ENTITY,
    "A field does not fit; or the idempotency key is known with another request, and the caller "
    "was strict; or a webhook's URL may not be called.",
    Problem,
    MEDIA_TYPE,
)
REFUSALS: Final = (
    ResponseSpec(
        HTTPStatus.NOT_FOUND,
        "No target has the model (`model_not_found`), or none is set (`llm_not_configured`).",
        Problem,
        MEDIA_TYPE,
    ),
    ResponseSpec(HTTPStatus.CONFLICT, "The job was cancelled.", Problem, MEDIA_TYPE),
    _UNFIT,
    BROKEN,
)
