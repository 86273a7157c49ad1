"""The synchronous routes for Ollama's clients: they only change their base URL.

A chat is submitted as a job like any other, in the urgent lane; the handler relays its output.
Calls that need no job go straight to the targets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec

from coatcheck.domain.errors import RetryLater, TargetUnreachable
from coatcheck.domain.failures import CoreFailure
from coatcheck.domain.ids import from_text
from coatcheck.domain.lanes import Lane
from coatcheck.domain.states import State
from coatcheck.domain.tenants import Scope
from coatcheck.http.job_resource import (
    IDEMPOTENCY_PARAMETERS,
    PLAN_INACTIVE,
    TICKET_HEADERS,
)
from coatcheck.http.parameters import Preferences, read_preferences
from coatcheck.http.problems import problem
from coatcheck.http.request import Request
from coatcheck.http.response import JSON, RawHeaders, Response, StreamResponse, json_response
from coatcheck.http.routing import HoldsOpen, Parameter, RequestBody, ResponseSpec, Route
from coatcheck.http.watching import RESUME_PARAMETERS, resume_after
from coatcheck.products.llm import chat_requests, schemas
from coatcheck.products.llm.direct_client import TAGS, DirectClient, NoAnswer
from coatcheck.products.llm.jobs import LlmContext, large_body_slots
from coatcheck.products.llm.model import LLM_ENDPOINTS, LlmFailure, LlmKind
from coatcheck.products.llm.openai.native import Untranslatable
from coatcheck.products.llm.problem_formats import OLLAMA
from coatcheck.products.llm.relay import (
    FAILURES,
    RETRY_AFTER_SECONDS,
    Framing,
    Relay,
    job_id_header,
    untranslatable,
)
from coatcheck.products.llm.submit_routes import (
    NOT_CONFIGURED,
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
    """Ollama's stream format: the target's objects unchanged, one on each line."""

    media_type = NDJSON

    def output(self, _: int | None, data: bytes) -> bytes:
        return data + b"\n"

    def restart(self) -> None:
        """Nothing to forget: each object is written unchanged."""

    def idle(self) -> bytes:
        # White space before the next object: clients fail on an empty line.
        return b" "

    def error(self, _: HTTPStatus, __: str, message: str) -> bytes:
        return _encode({"error": message}) + b"\n"

    def end(self) -> bytes:
        return b""


class SynchronousJobs:
    """Submits jobs and answers with their output."""

    def __init__(self, context: LlmContext) -> None:
        self.context = context
        self.submitter = ChatSubmitter(context)
        self._relay = Relay(context)

    async def answer(
        self,
        request: Request,
        submitted: SubmittedChat,
        kind: LlmKind,
        framing: Framing | None,
        *,
        preferences: Preferences,
        after: int,
        whole: Callable[[bytes, RawHeaders], Response],
    ) -> Response | StreamResponse:
        """The answer to whoever submitted a job: a stream with ``framing``, from the chunk behind
        ``after`` if the job was known; otherwise ``whole`` of the target's answer and headers."""
        if preferences.respond_async:
            return await self._ticket(submitted, kind, preferences)
        job = from_text(submitted.ticket.id)
        headers = [*self._relay.headers(job), *submitted.headers]
        if framing is not None:
            after = 0 if submitted.ticket.created else after
            return await self._relay.stream(request, job, framing, headers, after=after)
        view = await self._relay.held(request, submitted.ticket.id, preferences.wait)
        if view.state is State.COMPLETED:
            try:
                return whole(await self.context.jobs.answer(view), headers)
            except Untranslatable as error:
                why = untranslatable(job, error)
                return problem(request, HTTPStatus.BAD_GATEWAY, *why, headers=headers)
        if view.terminal:
            return self._relay.failed(request, view, headers)
        if preferences.wait is not None:
            return await self._ticket(submitted, kind, preferences)
        return await self._relay.drained(request, job, headers)

    async def _ticket(
        self, submitted: SubmittedChat, kind: LlmKind, preferences: Preferences
    ) -> Response | StreamResponse:
        """202 with a ticket, for a caller who does not wait, or no longer."""
        response = await self.context.jobs.ticket_response(
            submitted.ticket,
            preferences,
            self.context.jobs.links(submitted.ticket.id),
            kind=LLM_ENDPOINTS[kind],
            endpoint=LLM_ENDPOINTS[kind],
            lane=Lane.URGENT,
        )
        response.headers = [*response.headers, job_id_header(submitted.ticket.id)]
        return response


class Passthrough:
    """The routes that submit jobs."""

    def __init__(self, context: LlmContext) -> None:
        self._jobs = SynchronousJobs(context)

    async def chat(self, request: Request) -> Response | StreamResponse:
        return await self._answer(request, "chat")

    async def generate(self, request: Request) -> Response | StreamResponse:
        return await self._answer(request, "generate")

    async def _answer(self, request: Request, kind: LlmKind) -> Response | StreamResponse:
        preferences = read_preferences(request, in_query=False)
        after = resume_after(request)
        submitted, streams = await self._submit_chat(request, kind)
        framing = Ndjson() if streams else None
        return await self._jobs.answer(
            request,
            submitted,
            kind,
            framing,
            preferences=preferences,
            after=after,
            whole=lambda data, headers: Response(HTTPStatus.OK, data, [JSON, *headers]),
        )

    async def _submit_chat(self, request: Request, kind: LlmKind) -> tuple[SubmittedChat, bool]:
        """The job, and whether to stream its answer. Frees the body, because the caller may wait
        long."""
        async with self._jobs.submitter.fields_of(request) as fields:
            streams = chat_requests.read_stream(fields) is not False
            submitted = await self._jobs.submitter.chat(
                request, kind, fields, lane=Lane.URGENT, passthrough=True
            )
        return submitted, streams


class DirectRoutes:
    """The routes that call targets without a job."""

    def __init__(self, context: LlmContext) -> None:
        self._context = context
        self._direct = DirectClient(context.settings.llm_targets)
        # Its own room: a direct call keeps its body in memory until a target has answered.
        self._room = large_body_slots(context.settings)

    async def tags(self, request: Request) -> Response:
        return await self._models(request, TAGS)

    async def ps(self, request: Request) -> Response:
        return await self._models(request, _PS)

    async def version(self, request: Request) -> Response:
        self._context.check_configured()
        try:
            answer = await self._direct.first(_VERSION)
        except NoAnswer as error:
            return no_answer(request, error)
        return Response(HTTPStatus.OK, answer.body, [JSON])

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
                answer = await self._direct.post(path, model, _encode(fields))
        except NoAnswer as error:
            return no_answer(request, error)
        return Response(HTTPStatus.OK, answer.body, [JSON])


def _with_model(fields: chat_requests.Fields) -> chat_requests.Fields:
    """The fields with ``model``, which Ollama's older clients call ``name``."""
    if "name" in fields and chat_requests.MODEL not in fields:
        return {chat_requests.MODEL: fields["name"]}
    return fields


def no_answer(request: Request, error: NoAnswer) -> Response:
    """The response to a direct call that no target answered.

    503 if a retry may help; the status of the target's own refusal; otherwise 502.
    """
    signal = error.signal
    after: float | None = RETRY_AFTER_SECONDS
    code: str
    match signal:
        case TargetUnreachable():
            status, code = HTTPStatus.SERVICE_UNAVAILABLE, CoreFailure.TARGET_UNREACHABLE
        case RetryLater(code=LlmFailure.TARGET_BUSY):
            status, code = HTTPStatus.SERVICE_UNAVAILABLE, signal.code
            after = signal.after or after
        case _:
            code = getattr(signal, "code", LlmFailure.TARGET_ERROR)
            status, after = FAILURES.get(code, HTTPStatus.BAD_GATEWAY), None
    headers = [] if after is None else [(b"retry-after", b"%d" % max(1, round(after)))]
    return problem(request, status, code, str(signal), headers=headers)


def routes(context: LlmContext) -> list[Route]:
    """The routes under /api."""
    passing, direct = Passthrough(context), DirectRoutes(context)
    return [
        _job_route(
            "/api/chat",
            "ollama_chat",
            "Chat with a model, as with Ollama.",
            passing.chat,
            CHAT,
        ),
        _job_route(
            "/api/generate",
            "ollama_generate",
            "Complete a prompt, as with Ollama.",
            passing.generate,
            _GENERATION,
        ),
        _get_route(TAGS, "ollama_tags", "List the models of all targets.", direct.tags, _MODELS),
        _get_route(_PS, "ollama_ps", "List the loaded models of all targets.", direct.ps, _MODELS),
        _get_route(
            _VERSION, "ollama_version", "The version of the first target.", direct.version, _ANY
        ),
        _post_route(_SHOW, "ollama_show", "Describe a model.", direct.show, Scope.READ),
        _post_route(_EMBED, "ollama_embed", "Embed texts.", direct.embed, Scope.SUBMIT),
        _post_route(
            _EMBEDDINGS,
            "ollama_embeddings",
            "Embed a text, by the older API.",
            direct.embeddings,
            Scope.SUBMIT,
        ),
    ]


def _job_route(path: str, name: str, summary: str, handler: Any, body: Mapping[str, Any]) -> Route:
    return Route(
        methods=("POST",),
        path=path,
        name=name,
        summary=summary,
        description="Submits a job like `POST /jobs` and waits for its answer: NDJSON as it "
        'comes, or whole with `"stream": false`. Every field reaches the target unchanged.',
        handler=handler,
        access=Scope.SUBMIT,
        tag="llm",
        parameters=(*IDEMPOTENCY_PARAMETERS, *RESUME_PARAMETERS, PREFER, RETRY_COUNT),
        body=RequestBody("The request of Ollama's API.", schema=body),
        problem_format=OLLAMA,
        responses=(
            ResponseSpec(
                HTTPStatus.OK,
                "The target's objects, one on each line, or its whole answer.",
                media_type=NDJSON.decode(),
                schema=_ANY,
                also={"application/json": _ANY},
                headers=JOB_HEADERS,
            ),
            ACCEPTED,
            PLAN_INACTIVE,
            *CHAT_ERRORS,
        ),
    )


def _get_route(
    path: str, name: str, summary: str, handler: Any, schema: Mapping[str, Any]
) -> Route:
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
            ResponseSpec(HTTPStatus.OK, "The answer of Ollama's API.", schema=schema),
            NOT_CONFIGURED,
            TARGET_FAILED,
        ),
    )


def _post_route(path: str, name: str, summary: str, handler: Any, access: Scope) -> Route:
    return Route(
        methods=("POST",),
        path=path,
        name=name,
        summary=summary,
        handler=handler,
        access=access,
        tag="llm",
        body=RequestBody("The request of Ollama's API.", schema=_WITH_MODEL),
        held=HoldsOpen.ALWAYS,
        problem_format=OLLAMA,
        responses=(
            ResponseSpec(HTTPStatus.OK, "The answer of Ollama's API.", schema=_ANY),
            PLAN_INACTIVE,
            NOT_CONFIGURED,
            TARGET_FAILED,
            _UNPROCESSABLE,
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
    "How often the client has sent the request before. Above 0, the request joins the job of an "
    "earlier one, if nobody waits for that job any more.",
)
JOB_HEADERS: Final = {
    "X-Job-Id": "The id of the job.",
    "Location": "The URL of the job.",
    "Link": "The URLs to follow it (`events`), cancel it (`cancel`), list its files (`artifacts`).",
    "Idempotent-Replayed": "`true`: the idempotency key was known, no job was created.",
    "Idempotency-Mismatch": "`true`: the key was known with another payload.",
    "X-Job-Joined": "`true`: the request is a retry, and joined the job of an earlier one.",
}
ACCEPTED: Final = ResponseSpec(
    HTTPStatus.ACCEPTED,
    "The job is stored, and the caller does not wait (any longer).",
    schemas.ChatTicket,
    headers=TICKET_HEADERS | {"X-Job-Id": "The id of the job."},
)
TARGET_FAILED: Final = ResponseSpec.problem(
    HTTPStatus.BAD_GATEWAY, "The target failed; `code` says how."
)
_UNPROCESSABLE: Final = ResponseSpec.problem(
    HTTPStatus.UNPROCESSABLE_ENTITY,
    "A field is invalid; or the idempotency key was used with another request, and the caller "
    "asked for strict handling; or the URL of a webhook is forbidden.",
)
CHAT_ERRORS: Final = (
    ResponseSpec.problem(
        HTTPStatus.NOT_FOUND,
        "No target has the model (`model_not_found`), or none is configured "
        "(`llm_not_configured`).",
    ),
    ResponseSpec.problem(HTTPStatus.CONFLICT, "The job was cancelled."),
    _UNPROCESSABLE,
    TARGET_FAILED,
)
