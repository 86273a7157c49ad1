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
from coatcheck.domain.identity import Scope
from coatcheck.domain.lanes import Lane
from coatcheck.domain.limits import LLM_PAYLOAD_BYTES_MAX
from coatcheck.http.idempotency import read_idempotency_key
from coatcheck.http.job_responses import (
    IDEMPOTENCY_PARAMETERS,
    TICKET_HEADERS,
    WAIT_PARAMETERS,
    check_mismatch,
    etag,
    replay_headers,
)
from coatcheck.http.json_bodies import check_content_type
from coatcheck.http.prefer_header import read_preferences
from coatcheck.http.problems import MEDIA_TYPE, Problem
from coatcheck.http.request import Call
from coatcheck.http.response import RawHeaders, Reply, StreamReply
from coatcheck.http.routing import Answer, Operation, RequestBody
from coatcheck.http.webhook_headers import check_webhook_url
from coatcheck.products.llm import chat_requests as request
from coatcheck.products.llm import schemas as words
from coatcheck.products.llm.caller_retries import JOINED
from coatcheck.products.llm.context import Scene, stored_key
from coatcheck.products.llm.model import JOB_TIMEOUT_SECONDS, LLM_ENDPOINTS, LlmKind
from coatcheck.products.llm.presenter import JOBS

_NONE: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(slots=True, frozen=True)
class HandedIn:
    """A job that is safe, new or known, and the model it asks. ``headers`` say if it was known."""

    ticket: Ticket
    model: str
    headers: RawHeaders


class HandIn:
    """Makes jobs of calls whose caller was let in (``Scope.SUBMIT``)."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    def fields_of(self, call: Call) -> AbstractAsyncContextManager[dict[str, msgspec.Raw]]:
        """The fields of the body, each as it was written, to be handed in before it is left. Raises
        LlmNotConfigured before it is read, InvalidBody, and what else a body can be refused for."""
        self._scene.check_configured()
        return request.fields_of(call, self._scene.room)

    async def chat(
        self,
        call: Call,
        kind: LlmKind,
        fields: request.Fields,
        *,
        lane: Lane,
        passthrough: bool,
        turns: Sequence[request.Fields] = (),
        image_urls: Mapping[str, str] = _NONE,
    ) -> HandedIn:
        """Create the job, or find the one that the call's idempotency key names, or that the call
        is a retry for.

        ``passthrough``: the target may be sent a request that asks nothing, which has it load its
        model. ``turns`` ask once more each. ``image_urls`` are those among the messages' images, by
        the fields that they came in: they are fetched for the job. Raises InvalidParameter,
        UrlForbidden, SubscriptionInactive, QueueFull, and IdempotencyMismatch if the caller is
        strict.
        """
        scene, principal = self._scene, call.principal
        scene.check_configured()
        model = request.read_model(fields)
        request.check_shape(kind, fields)
        asked = request.ASKED[kind]
        if not passthrough and not request.has(fields, asked):
            raise InvalidParameter(asked, "is missing: what to ask the model", "body")
        payload = request.payload_of(kind, model, fields, turns, fetch_images=bool(image_urls))
        said = read_idempotency_key(call)
        if passthrough and said is None and not request.OWN_FIELDS & fields.keys():
            joined = await scene.callers.join(call, payload)
            if joined is not None:
                return HandedIn(joined, model, [JOINED])
        key = None if said is None else stored_key(principal, said)
        await self._scene.gate.check_unless_known(
            call.principal, key, partial(self._scene.engine.knows_key, org=call.principal.org)
        )
        told = await self._told(fields, principal.org)
        for place, url in image_urls.items():
            await check_webhook_url(place, url, scene.image_guard, principal.org)
        ticket = await self._submit(
            call,
            kind,
            payload,
            {
                "flow": model,
                "lane": lane,
                "idempotency_key": key,
                **told,
            },
        )
        check_mismatch(ticket, read_preferences(call))
        return HandedIn(ticket, model, replay_headers(ticket))

    async def _submit(
        self, call: Call, kind: LlmKind, payload: bytes, options: Mapping[str, Any]
    ) -> Ticket:
        scene, principal = self._scene, call.principal
        return await scene.engine.submit(
            LLM_ENDPOINTS[kind],
            payload,
            org=principal.org,
            owner=principal.owner,
            request_id=call.request_id,
            timeout=JOB_TIMEOUT_SECONDS,
            keep_completed=scene.settings.llm_keep_seconds,
            payload_bytes_max=LLM_PAYLOAD_BYTES_MAX + request.ENVELOPE_BYTES_MAX,
            **options,
        )

    async def _told(self, fields: request.Fields, org: str) -> dict[str, Any]:
        """Who is to be told of the job. Raises UrlForbidden unless they may be called as things
        are now; whoever posts to them looks again."""
        told: dict[str, Any] = {}
        for name in sorted(request.OWN_FIELDS):
            url = request.read_url(fields, name)
            if url is None:
                continue
            await check_webhook_url(name, url, self._scene.guard, org)
            told[name] = url
        if request.STATE_WEBHOOK_URL in told:
            told["state_webhook_detail"] = "phases"
        return told


class Submitting:
    """The route by which a chat is queued."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._hand_in = HandIn(scene)

    async def submit(self, call: Call) -> Reply | StreamReply:
        """POST /jobs: answered as soon as the job is safe."""
        scene, org = self._scene, call.principal.org
        preferences = read_preferences(call)
        check_content_type(call)
        kind, handed_in = await self._handed_in(call)
        ticket = handed_in.ticket
        view = None
        if preferences.wait is not None:
            view = await scene.answers.held(call, ticket.id, org, preferences.wait)
            if view.terminal:
                urls = scene.voice.urls(view.id)
                headers = [*preferences.headers, *handed_in.headers, *urls.headers()]
                return await scene.voice.reply(view, [*headers, (b"etag", etag(view))])
        return await scene.answers.submitted(
            ticket,
            scene.voice,
            kind=LLM_ENDPOINTS[kind],
            lane=Lane.STANDARD,
            preferences=preferences,
            view=view,
        )

    async def _handed_in(self, call: Call) -> tuple[LlmKind, HandedIn]:
        async with self._hand_in.fields_of(call) as fields:
            kind: LlmKind = "chat"
            if request.has(fields, request.PROMPT):
                if request.has(fields, request.MESSAGES):
                    raise InvalidParameter(
                        request.PROMPT, "comes with `messages`: send one of the two", "body"
                    )
                kind = "generate"
            handed_in = await self._hand_in.chat(
                call, kind, fields, lane=Lane.STANDARD, passthrough=False
            )
        return kind, handed_in


def operations(scene: Scene) -> list[Operation]:
    submitting = Submitting(scene)
    return [
        Operation(
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
            answers=(
                Answer(
                    HTTPStatus.ACCEPTED, "The job is safe.", words.Ticket, headers=TICKET_HEADERS
                ),
                Answer(
                    HTTPStatus.OK,
                    "The job has ended within the time that the caller was willing to wait.",
                    words.Job,
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
        request.MODEL: {"type": "string", "minLength": 1, "maxLength": 200},
        request.MESSAGES: {"type": ["array", "null"], "items": {"type": "object"}},
        request.PROMPT: {"type": ["string", "null"]},
        request.STREAM: {
            "type": ["boolean", "null"],
            "description": "Makes no difference here.",
        },
        request.STATE_WEBHOOK_URL: {
            **_WEBHOOK,
            "description": "Is told of every state by a signed POST.",
        },
        request.WEBHOOK_URL: {
            **_WEBHOOK,
            "description": "Is told of the end by a signed POST.",
        },
    },
    "required": [request.MODEL],
    "additionalProperties": True,
}
PAYMENT: Final = Answer(
    HTTPStatus.PAYMENT_REQUIRED, "The organisation's plan is not active.", Problem, MEDIA_TYPE
)
NOT_CONFIGURED: Final = Answer(
    HTTPStatus.NOT_FOUND, "No target is set (`llm_not_configured`).", Problem, MEDIA_TYPE
)
_REFUSED: Final = Answer(
    HTTPStatus.UNPROCESSABLE_ENTITY,
    "The idempotency key is known with another request, and the caller was strict; or a webhook's "
    "URL may not be called.",
    Problem,
    MEDIA_TYPE,
)
