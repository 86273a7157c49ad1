"""Handing a chat in: what the queued route and the synchronous ones have in common, and the former.

The synchronous passthrough (``passthrough.py``, ``openai.py``) hands in the same jobs in the same
way; its handlers then wait for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final

import msgspec

from coatcheck.core import Ticket
from coatcheck.domain.errors import (
    InvalidParameter,
)
from coatcheck.domain.lanes import Lane
from coatcheck.domain.limits import LLM_PAYLOAD_BYTES_MAX
from coatcheck.domain.tenants import Scope
from coatcheck.http.bodies import check_content_type
from coatcheck.http.job_responses import (
    IDEMPOTENCY_PARAMETERS,
    TICKET_HEADERS,
    WAIT_PARAMETERS,
    check_mismatch,
    etag,
    replay_headers,
)
from coatcheck.http.parameters import check_webhook_url, read_idempotency_key, read_preferences
from coatcheck.http.problems import MEDIA_TYPE, Problem
from coatcheck.http.request import Request
from coatcheck.http.response import RawHeaders, Response, StreamResponse
from coatcheck.http.routing import RequestBody, ResponseSpec, Route
from coatcheck.products.llm import chat_requests, schemas
from coatcheck.products.llm.caller_retries import JOINED
from coatcheck.products.llm.context import LlmContext, stored_key
from coatcheck.products.llm.model import JOB_TIMEOUT_SECONDS, LLM_ENDPOINTS, LlmKind
from coatcheck.products.llm.presenter import JOBS

_NONE: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(slots=True, frozen=True)
class SubmittedChat:
    """A job that is safe, new or known, and the model it asks. ``headers`` say if it was known."""

    ticket: Ticket
    model: str
    headers: RawHeaders


class ChatSubmitter:
    """Makes jobs of calls whose caller was let in (``Scope.SUBMIT``)."""

    def __init__(self, context: LlmContext) -> None:
        self._context = context

    def fields_of(self, request: Request) -> AbstractAsyncContextManager[dict[str, msgspec.Raw]]:
        """The fields of the body, each as it was written, to be handed in before it is left. Raises
        LlmNotConfigured before it is read, InvalidBody, and what else a body can be refused for."""
        self._context.check_configured()
        return chat_requests.fields_of(request, self._context.room)

    async def chat(
        self,
        request: Request,
        kind: LlmKind,
        fields: chat_requests.Fields,
        *,
        lane: Lane,
        passthrough: bool,
        turns: Sequence[chat_requests.Fields] = (),
        image_urls: Mapping[str, str] = _NONE,
    ) -> SubmittedChat:
        """Create the job, or find the one that the call's idempotency key names, or that the call
        is a retry for.

        ``passthrough``: the target may be sent a request that asks nothing, which has it load its
        model. ``turns`` ask once more each. ``image_urls`` are those among the messages' images, by
        the fields that they came in: they are fetched for the job. Raises InvalidParameter,
        UrlForbidden, SubscriptionInactive, QueueFull, and IdempotencyMismatch if the caller is
        strict.
        """
        context, principal = self._context, request.principal
        context.check_configured()
        model = chat_requests.read_model(fields)
        chat_requests.check_shape(kind, fields)
        asked = chat_requests.ASKED[kind]
        if not passthrough and not chat_requests.has(fields, asked):
            raise InvalidParameter(asked, "is missing: what to ask the model", "body")
        payload = chat_requests.payload_of(
            kind, model, fields, turns, fetch_images=bool(image_urls)
        )
        said = read_idempotency_key(request)
        if passthrough and said is None and not chat_requests.OWN_FIELDS & fields.keys():
            joined = await context.callers.join(request, payload)
            if joined is not None:
                return SubmittedChat(joined, model, [JOINED])
        key = None if said is None else stored_key(principal, said)
        await self._context.gate.check_unless_known(
            request.principal,
            key,
            partial(self._context.engine.knows_key, org=request.principal.org),
        )
        told = await self._told(fields, principal.org)
        for place, url in image_urls.items():
            await check_webhook_url(place, url, context.image_guard, principal.org)
        ticket = await self._submit(
            request,
            kind,
            payload,
            {
                "queue_key": model,
                "lane": lane,
                "idempotency_key": key,
                **told,
            },
        )
        check_mismatch(ticket, read_preferences(request))
        return SubmittedChat(ticket, model, replay_headers(ticket))

    async def _submit(
        self, request: Request, kind: LlmKind, payload: bytes, options: Mapping[str, Any]
    ) -> Ticket:
        context, principal = self._context, request.principal
        return await context.engine.submit(
            LLM_ENDPOINTS[kind],
            payload,
            org=principal.org,
            owner=principal.owner,
            request_id=request.request_id,
            timeout=JOB_TIMEOUT_SECONDS,
            keep_completed=context.settings.llm_keep_seconds,
            payload_bytes_max=LLM_PAYLOAD_BYTES_MAX + chat_requests.ENVELOPE_BYTES_MAX,
            **options,
        )

    async def _told(self, fields: chat_requests.Fields, org: str) -> dict[str, Any]:
        """Who is to be told of the job. Raises UrlForbidden unless they may be called as things
        are now; whoever posts to them looks again."""
        told: dict[str, Any] = {}
        for name in sorted(chat_requests.OWN_FIELDS):
            url = chat_requests.read_url(fields, name)
            if url is None:
                continue
            await check_webhook_url(name, url, self._context.guard, org)
            told[name] = url
        if chat_requests.STATE_WEBHOOK_URL in told:
            told["state_webhook_detail"] = "phases"
        return told


class ChatSubmitRoutes:
    """The route by which a chat is queued."""

    def __init__(self, context: LlmContext) -> None:
        self._context = context
        self._hand_in = ChatSubmitter(context)

    async def submit(self, request: Request) -> Response | StreamResponse:
        """POST /jobs: answered as soon as the job is safe."""
        context, org = self._context, request.principal.org
        preferences = read_preferences(request)
        check_content_type(request)
        kind, handed_in = await self._handed_in(request)
        ticket = handed_in.ticket
        view = None
        if preferences.wait is not None:
            view = await context.responses.held(request, ticket.id, org, preferences.wait)
            if view.terminal:
                urls = context.presenter.urls(view.id)
                headers = [*preferences.headers, *handed_in.headers, *urls.headers()]
                return await context.presenter.response(view, [*headers, (b"etag", etag(view))])
        return await context.responses.submitted(
            ticket,
            context.presenter,
            kind=LLM_ENDPOINTS[kind],
            lane=Lane.STANDARD,
            preferences=preferences,
            view=view,
        )

    async def _handed_in(self, request: Request) -> tuple[LlmKind, SubmittedChat]:
        async with self._hand_in.fields_of(request) as fields:
            kind: LlmKind = "chat"
            if chat_requests.has(fields, chat_requests.PROMPT):
                if chat_requests.has(fields, chat_requests.MESSAGES):
                    raise InvalidParameter(
                        chat_requests.PROMPT, "comes with `messages`: send one of the two", "body"
                    )
                kind = "generate"
            handed_in = await self._hand_in.chat(
                request, kind, fields, lane=Lane.STANDARD, passthrough=False
            )
        return kind, handed_in


def routes(context: LlmContext) -> list[Route]:
    submitting = ChatSubmitRoutes(context)
    return [
        Route(
            methods=("POST",),
            path=JOBS,
            name="submit_chat",
            summary="Queue a chat, or a completion.",
            description="The body is what Ollama's `/api/chat` takes, or with `prompt` what "
            "`/api/generate` takes; every field reaches the target as it is, but for the two "
            "webhooks'. Answered as soon as the job is safe.",
            handler=submitting.submit,
            access=Scope.SUBMIT,
            tag="llm",
            parameters=(*IDEMPOTENCY_PARAMETERS, *WAIT_PARAMETERS),
            body=RequestBody("A chat.", schema=_CHAT),
            responses=(
                ResponseSpec(
                    HTTPStatus.ACCEPTED,
                    "The job is safe.",
                    schemas.ChatTicket,
                    headers=TICKET_HEADERS,
                ),
                ResponseSpec(
                    HTTPStatus.OK,
                    "The job has ended within the time that the caller was willing to wait.",
                    schemas.ChatJob,
                    headers=TICKET_HEADERS,
                ),
                PAYMENT,
                NOT_CONFIGURED,
                _REFUSED,
            ),
        )
    ]


_WEBHOOK: Final = {"type": ["string", "null"], "format": "uri", "maxLength": 2048}
_CHAT: Final = {
    "type": "object",
    "properties": {
        chat_requests.MODEL: {"type": "string", "minLength": 1, "maxLength": 200},
        chat_requests.MESSAGES: {"type": ["array", "null"], "items": {"type": "object"}},
        chat_requests.PROMPT: {"type": ["string", "null"]},
        chat_requests.STREAM: {
            "type": ["boolean", "null"],
            "description": "Makes no difference here.",
        },
        chat_requests.STATE_WEBHOOK_URL: {
            **_WEBHOOK,
            "description": "Is told of every state by a signed POST.",
        },
        chat_requests.WEBHOOK_URL: {
            **_WEBHOOK,
            "description": "Is told of the end by a signed POST.",
        },
    },
    "required": [chat_requests.MODEL],
    "additionalProperties": True,
}
PAYMENT: Final = ResponseSpec(
    HTTPStatus.PAYMENT_REQUIRED, "The organisation's plan is not active.", Problem, MEDIA_TYPE
)
NOT_CONFIGURED: Final = ResponseSpec(
    HTTPStatus.NOT_FOUND, "No target is set (`llm_not_configured`).", Problem, MEDIA_TYPE
)
_REFUSED: Final = ResponseSpec(
    HTTPStatus.UNPROCESSABLE_ENTITY,
    "The idempotency key is known with another request, and the caller was strict; or a webhook's "
    "URL may not be called.",
    Problem,
    MEDIA_TYPE,
)
