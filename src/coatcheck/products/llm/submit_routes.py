"""Submits chats: ``POST /jobs``, and the ``ChatSubmitter`` that the synchronous routes share.

The synchronous routes (``passthrough.py``, ``openai/routes.py``) submit the same jobs in the same
way; their handlers then wait for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final

import msgspec

from coatcheck.core import Ticket
from coatcheck.domain.errors import (
    InvalidParameter,
)
from coatcheck.domain.lanes import Lane
from coatcheck.http.bodies import check_content_type
from coatcheck.http.job_resource import check_mismatch, replay_headers
from coatcheck.http.parameters import check_webhook_url, read_preferences
from coatcheck.http.request import Request
from coatcheck.http.response import RawHeaders, Response, StreamResponse
from coatcheck.http.routing import RequestBody, ResponseSpec, Route
from coatcheck.products.llm import chat_requests
from coatcheck.products.llm.caller_retries import JOINED
from coatcheck.products.llm.jobs import JOBS, LlmContext
from coatcheck.products.llm.model import (
    JOB_TIMEOUT_SECONDS,
    LLM_ENDPOINTS,
    LLM_PAYLOAD_BYTES_MAX,
    LlmKind,
)

_NONE: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(slots=True, frozen=True)
class SubmittedChat:
    """A stored job, new or known, and its model. ``headers`` say whether it was known."""

    ticket: Ticket
    model: str
    headers: RawHeaders


class ChatSubmitter:
    """Makes jobs of authorised requests (``Scope.SUBMIT``)."""

    def __init__(self, context: LlmContext) -> None:
        self._context = context

    def fields_of(self, request: Request) -> AbstractAsyncContextManager[dict[str, msgspec.Raw]]:
        """The fields of the body, each as it was written. Submit within the context. Raises
        LlmNotConfigured before the body is read, InvalidBody, and the other errors of bodies."""
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
        """Create the job, or find the one that the request's idempotency key names, or that the
        request retries.

        ``passthrough``: the request may have no prompt, which makes the target load its model.
        Each of ``turns`` is one more call. ``image_urls`` are the URLs among the messages' images,
        by their fields; a worker fetches them. Raises InvalidParameter, UrlForbidden,
        SubscriptionInactive, QueueFull, and IdempotencyMismatch if the caller is strict.
        """
        context, principal = self._context, request.principal
        context.check_configured()
        model = chat_requests.read_model(fields)
        chat_requests.check_shape(kind, fields)
        prompt_field = chat_requests.PROMPT_FIELDS[kind]
        if not passthrough and not chat_requests.has(fields, prompt_field):
            raise InvalidParameter(prompt_field, "is missing: the prompt for the model", "body")
        payload = chat_requests.payload_of(
            kind, model, fields, turns, fetch_images=bool(image_urls)
        )
        key = context.jobs.key(request)
        if passthrough and key is None and not chat_requests.OWN_FIELDS & fields.keys():
            joined = await context.callers.join(request, payload)
            if joined is not None:
                return SubmittedChat(joined, model, [JOINED])
        await context.jobs.check_new_work(request, key)
        webhooks = await self._webhooks(fields, principal.org)
        for path, url in image_urls.items():
            await check_webhook_url(path, url, context.image_guard, principal.org)
        ticket = await self._submit(
            request,
            kind,
            payload,
            {
                "queue_key": model,
                "lane": lane,
                "idempotency_key": key,
                **webhooks,
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

    async def _webhooks(self, fields: chat_requests.Fields, org: str) -> dict[str, Any]:
        """The job's webhooks, as options of a submit. Raises UrlForbidden unless their URLs may be
        called now; each delivery checks again."""
        webhooks: dict[str, Any] = {}
        for name in sorted(chat_requests.OWN_FIELDS):
            url = chat_requests.read_url(fields, name)
            if url is None:
                continue
            await check_webhook_url(name, url, self._context.guard, org)
            webhooks[name] = url
        if chat_requests.STATE_WEBHOOK_URL in webhooks:
            webhooks["state_webhook_detail"] = "phases"
        return webhooks


class ChatSubmitRoutes:
    """The handler of ``POST /jobs``."""

    def __init__(self, context: LlmContext) -> None:
        self._context = context
        self._submitter = ChatSubmitter(context)

    async def submit(self, request: Request) -> Response | StreamResponse:
        """POST /jobs: answers as soon as the job is stored."""
        preferences = read_preferences(request)
        check_content_type(request)
        kind, submitted = await self._submit_chat(request)
        return await self._context.jobs.accepted(
            request, submitted.ticket, preferences, endpoint=LLM_ENDPOINTS[kind]
        )

    async def _submit_chat(self, request: Request) -> tuple[LlmKind, SubmittedChat]:
        async with self._submitter.fields_of(request) as fields:
            kind: LlmKind = "chat"
            if chat_requests.has(fields, chat_requests.PROMPT):
                if chat_requests.has(fields, chat_requests.MESSAGES):
                    raise InvalidParameter(
                        chat_requests.PROMPT, "excludes `messages`: send one of the two", "body"
                    )
                kind = "generate"
            submitted = await self._submitter.chat(
                request, kind, fields, lane=Lane.STANDARD, passthrough=False
            )
        return kind, submitted


def routes(context: LlmContext) -> list[Route]:
    submitting = ChatSubmitRoutes(context)
    return [
        context.jobs.submit_route(
            JOBS,
            "submit_chat",
            submitting.submit,
            summary="Queue a chat or a completion.",
            description="The body is that of Ollama's `/api/chat`, or with `prompt` that of "
            "`/api/generate`. Every field except the two webhook URLs reaches the target "
            "unchanged. The answer comes as soon as the job is stored.",
            body=RequestBody("A chat.", schema=_CHAT),
            responses=(NOT_CONFIGURED,),
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
            "description": "Has no effect here.",
        },
        chat_requests.STATE_WEBHOOK_URL: {
            **_WEBHOOK,
            "description": "Receives every state by a signed POST.",
        },
        chat_requests.WEBHOOK_URL: {
            **_WEBHOOK,
            "description": "Receives the end by a signed POST.",
        },
    },
    "required": [chat_requests.MODEL],
    "additionalProperties": True,
}
NOT_CONFIGURED: Final = ResponseSpec.problem(
    HTTPStatus.NOT_FOUND, "No target is configured (`llm_not_configured`)."
)
