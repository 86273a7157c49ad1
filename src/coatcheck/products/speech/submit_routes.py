"""The routes by which work is submitted: texts to speak, designs to preview, voices to clone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from coatcheck.core import Ticket
from coatcheck.domain.errors import FieldIssue, InvalidInput, JobNotFound
from coatcheck.domain.ids import new_id, to_text
from coatcheck.domain.lanes import Lane
from coatcheck.domain.limits import PAYLOAD_BYTES_MAX, SIGNED_URL_SECONDS_MAX
from coatcheck.domain.remote_work import Destination, encode_work
from coatcheck.domain.tenants import Scope
from coatcheck.http.bodies import read_body
from coatcheck.http.job_responses import (
    IDEMPOTENCY_PARAMETERS,
    TICKET_HEADERS,
    WAIT_PARAMETERS,
    check_mismatch,
)
from coatcheck.http.parameters import check_webhook_url, read_idempotency_key, read_preferences
from coatcheck.http.problems import MEDIA_TYPE, Problem
from coatcheck.http.request import Request
from coatcheck.http.response import Response, StreamResponse
from coatcheck.http.retry_after import kind_of
from coatcheck.http.routing import ULID, Handler, Parameter, RequestBody, ResponseSpec, Route
from coatcheck.products.speech import schemas
from coatcheck.products.speech.context import SpeechContext, stored_key
from coatcheck.products.speech.errors import SpeechNotConfigured, VoiceNotFound
from coatcheck.products.speech.model import (
    AUDIO_TYPE,
    LANGUAGE,
    OPERATOR_TARGET,
    SPEECH_ENDPOINTS,
    SpeechReader,
    SpeechType,
    StoredSpeechTask,
    StoredVoice,
)
from coatcheck.products.speech.repository import SpeechRepository

GENERATE: Final = "/generate"
DESIGN_PREVIEW: Final = "/voices/design-preview"
CLONE: Final = "/voices/{id}/clone"
TAG: Final = "speech"
_WEBHOOKS: Final = ("webhook_url", "state_webhook_url")
_encode: Final = msgspec.json.Encoder().encode


class RemoteBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the remote is given. Without a ``type``: a text to be spoken."""

    language: str
    text: str = ""
    type: SpeechType = SpeechType.GENERATE
    voice_id: str | None = None
    description: str | None = None
    reference_url: str | None = None
    prompt_url: str | None = None


@dataclass(frozen=True, slots=True)
class SpeechOrder:
    """What a task is to do. ``voice`` is None for a preview, which has a description."""

    type: SpeechType
    language: str
    text: str
    voice_id: str | None = None
    description: str | None = None
    clone_id: str | None = None

    @property
    def fingerprint(self) -> bytes:
        """What tells one use of an idempotency key from another. URLs are signed anew each time:
        they tell nothing of what was asked."""
        told = [self.voice_id, self.language, self.text]
        if self.type is not SpeechType.GENERATE or self.clone_id is not None:
            told += [self.type, self.description, self.clone_id]
        return _encode(told)


class Material(NamedTuple):
    """What the user has of what an order names."""

    voice: StoredVoice | None
    clone: StoredSpeechTask | None


class SpeechSubmitRoutes:
    """The routes by which work is submitted."""

    def __init__(self, context: SpeechContext) -> None:
        self._context = context

    async def generate(self, request: Request) -> Response | StreamResponse:
        """POST /generate: answered as soon as the task is safe."""
        self._check_caller(request)
        asked = await read_body(request, schemas.Generate, PAYLOAD_BYTES_MAX)
        order = SpeechOrder(
            SpeechType.GENERATE,
            asked.language,
            asked.text,
            voice_id=asked.voice_id,
            clone_id=asked.clone_id,
        )
        return await self._submitted(request, order, asked)

    async def preview_design(self, request: Request) -> Response | StreamResponse:
        """POST /voices/design-preview: a text, said by a voice that is only described."""
        self._check_caller(request)
        asked = await read_body(request, schemas.DesignPreview, PAYLOAD_BYTES_MAX)
        order = SpeechOrder(
            SpeechType.DESIGN_PREVIEW, asked.language, asked.text, description=asked.description
        )
        return await self._submitted(request, order, asked)

    async def clone(self, request: Request) -> Response | StreamResponse:
        """POST /voices/{id}/clone: makes of a voice what texts are spoken with."""
        self._check_caller(request)
        asked = await read_body(request, schemas.Clone, PAYLOAD_BYTES_MAX)
        order = SpeechOrder(
            SpeechType.CLONE, asked.language, asked.transcript or "", voice_id=request.params["id"]
        )
        return await self._submitted(request, order, asked)

    def _check_caller(self, request: Request) -> None:
        """Before the body is read. Raises UserRequired and SpeechNotConfigured."""
        self._context.reader(request)
        self._context.check_configured()

    async def _submitted(
        self,
        request: Request,
        order: SpeechOrder,
        asked: schemas.Generate | schemas.DesignPreview | schemas.Clone,
    ) -> Response | StreamResponse:
        context, org = self._context, request.principal.org
        reader, preferences = context.reader(request), read_preferences(request)
        _check(order)
        ticket = await self._ticket(request, reader, order, await self._told(asked, org))
        check_mismatch(ticket, preferences)
        view = None
        if preferences.wait is not None:
            view = await context.responses.held(request, ticket.id, org, preferences.wait)
        return await context.responses.submitted(
            ticket,
            context.presenter(request, order.type),
            kind=kind_of(org, SPEECH_ENDPOINTS[order.type], reader.user),
            lane=Lane.STANDARD,
            preferences=preferences,
            view=view,
        )

    async def _ticket(
        self, request: Request, reader: SpeechReader, order: SpeechOrder, told: dict[str, Any]
    ) -> Ticket:
        context, principal = self._context, request.principal
        said = read_idempotency_key(request)
        key = None if said is None else stored_key(principal, said)
        material = await self.material(reader, order, key)
        await context.gate.check_unless_known(
            principal, key, partial(context.engine.knows_key, org=principal.org)
        )
        # The job that the key names is all that is looked for if its voice is gone.
        is_gone = material is None
        voice = _NOBODY if is_gone else None
        if material is not None and material.voice is not None:
            voice = material.voice.uuid
        clone = None if material is None else material.clone
        return await context.engine.extension(SpeechRepository).submit(
            reader,
            new_id(),
            await self.payload(order, material),
            kind=order.type,
            voice=voice,
            language=order.language,
            text=order.text,
            description=None if is_gone else order.description,
            clone=None if clone is None else clone.view.uuid,
            fingerprint_of=order.fingerprint,
            owner=principal.owner,
            queue_key=reader.user,
            lane=Lane.STANDARD,
            idempotency_key=key,
            request_id=request.request_id,
            timeout=context.settings.speech_timeout_seconds,
            **told,
        )

    async def payload(self, order: SpeechOrder, material: Material | None) -> bytes:
        """The payload of a task: what the remote is given, and where it is. Raises
        SpeechNotConfigured if the remote could not fetch what it needs."""
        reference_url = prompt_url = None
        if material is not None:
            reference_url = await self._reference_url(material.voice)
            prompt_url = await self._prompt_url(material.clone)
            if order.type is SpeechType.CLONE and reference_url is None:
                raise SpeechNotConfigured(_NO_ADDRESS)
        body = RemoteBody(
            order.language,
            order.text,
            order.type,
            order.voice_id,
            order.description,
            reference_url,
            prompt_url,
        )
        return encode_work(Destination(operator=OPERATOR_TARGET), _encode(body))

    async def material(
        self, reader: SpeechReader, order: SpeechOrder, key: str | None
    ) -> Material | None:
        """What the order names. It may be gone by now if the key is known, for that job was made
        with it: then None. Raises VoiceNotFound, and InvalidInput for a clone."""
        voice = clone = None
        try:
            if order.voice_id is not None:
                voice = await self._context.engine.extension(SpeechRepository).voice(
                    reader, order.voice_id
                )
            if order.clone_id is not None:
                clone = await self._clone(reader, order)
        except (VoiceNotFound, InvalidInput):
            if key is None or not await self._context.engine.knows_key(key, org=reader.org):
                raise
            return None
        return Material(voice, clone)

    async def _clone(self, reader: SpeechReader, order: SpeechOrder) -> StoredSpeechTask:
        """The completed task that the order's clone is the result of. Whatever is wrong with it is
        answered alike."""
        assert order.clone_id is not None
        try:
            task = await self._context.engine.extension(SpeechRepository).task(
                reader, order.clone_id
            )
        except JobNotFound:
            raise _no_clone() from None
        is_of_voice = task.spoken.voice is not None and to_text(task.spoken.voice) == order.voice_id
        if task.type is not SpeechType.CLONE or task.audio is None or not is_of_voice:
            raise _no_clone()
        return task

    async def _reference_url(self, voice: StoredVoice | None) -> str | None:
        """Where the remote hears what the voice is like; None if there is no address of ours that
        it could ask."""
        if voice is None:
            return None
        return await self._signed(voice.blob_key, "reference.wav", AUDIO_TYPE)

    async def _prompt_url(self, clone: StoredSpeechTask | None) -> str | None:
        """Where the remote fetches what it has made of the voice."""
        if clone is None:
            return None
        file = clone.audio
        assert file is not None, "it was looked at"
        url = await self._signed(file.blob_key, file.name, file.media_type)
        if url is None:
            raise SpeechNotConfigured(_NO_ADDRESS)
        return url

    async def _signed(self, blob_key: str, file_name: str, media_type: str) -> str | None:
        signed = await self._context.engine.signer.signed_get(
            blob_key, SIGNED_URL_SECONDS_MAX, file_name=file_name, media_type=media_type
        )
        if not signed.url.startswith("/"):
            return signed.url
        public_url = self._context.settings.public_url
        return public_url + signed.url if public_url else None

    async def _told(
        self, asked: schemas.Generate | schemas.DesignPreview | schemas.Clone, org: str
    ) -> dict[str, Any]:
        """Who is to be told of the task. Raises UrlForbidden unless they may be called as things
        are now; whoever posts to them looks again."""
        told: dict[str, Any] = {}
        for name in _WEBHOOKS:
            url: str | None = getattr(asked, name)
            if url is None:
                continue
            await check_webhook_url(name, url, self._context.guard, org)
            told[name] = url
        return told


def _check(order: SpeechOrder) -> None:
    """What the document says by patterns, in words."""
    issues = []
    if order.type is not SpeechType.CLONE and not order.text.strip():
        issues.append(FieldIssue("text", "has nothing to say: it is all white space"))
    if order.description is not None and not order.description.strip():
        issues.append(FieldIssue("description", "says nothing: it is all white space"))
    if re.search(LANGUAGE, order.language) is None:
        issues.append(FieldIssue("language", "must be a language tag, such as en, en-gb or pt-BR"))
    if issues:
        raise InvalidInput(issues)


def _no_clone() -> InvalidInput:
    return InvalidInput(
        [FieldIssue("clone_id", "must be a completed clone of this voice, whose file is kept")]
    )


def routes(context: SpeechContext) -> list[Route]:
    submitting = SpeechSubmitRoutes(context)
    return [
        _route(
            path=GENERATE,
            name="generate_speech",
            summary="Have a text spoken by a voice.",
            handler=submitting.generate,
            body=RequestBody("What to say.", schemas.Generate),
            not_found="The caller has no such voice (`voice_not_found`); or no remote is set "
            "(`speech_not_configured`).",
        ),
        _route(
            path=DESIGN_PREVIEW,
            name="preview_voice_design",
            summary="Have a text spoken by a voice that is only described.",
            handler=submitting.preview_design,
            body=RequestBody("What the voice is like, and what it says.", schemas.DesignPreview),
            not_found="No remote is set (`speech_not_configured`).",
        ),
        _route(
            path=CLONE,
            name="clone_voice",
            summary="Have a remote make of a voice what texts are spoken with.",
            handler=submitting.clone,
            parameters=(Parameter("id", "path", "The voice's id.", ULID),),
            body=RequestBody("What the recording is like.", schemas.Clone),
            not_found="The caller has no such voice (`voice_not_found`); or no remote is set, or "
            "it has no address to hear the voice at (`speech_not_configured`).",
        ),
    ]


def _route(
    *,
    path: str,
    name: str,
    summary: str,
    handler: Handler,
    body: RequestBody,
    not_found: str,
    parameters: Sequence[Parameter] = (),
) -> Route:
    """A route by which work is submitted."""
    return Route(
        methods=("POST",),
        path=path,
        name=name,
        summary=summary,
        description="Answered as soon as the task is safe; the work is done elsewhere.",
        handler=handler,
        access=Scope.SUBMIT,
        tag=TAG,
        parameters=(*parameters, *IDEMPOTENCY_PARAMETERS, *WAIT_PARAMETERS),
        body=body,
        responses=(
            ResponseSpec(
                HTTPStatus.ACCEPTED,
                "The task is safe.",
                schemas.SpeechTicket,
                headers=TICKET_HEADERS,
            ),
            ResponseSpec(
                HTTPStatus.OK,
                "The task has ended within the time that the caller was willing to wait.",
                schemas.SpeechTask,
                headers=TICKET_HEADERS,
            ),
            PAYMENT,
            ResponseSpec(HTTPStatus.NOT_FOUND, not_found, Problem, MEDIA_TYPE),
            ResponseSpec(
                HTTPStatus.UNPROCESSABLE_ENTITY,
                "A field does not fit; or the idempotency key is known with another request, "
                "and the caller was strict; or a webhook's URL may not be called.",
                Problem,
                MEDIA_TYPE,
            ),
        ),
    )


_NO_ADDRESS: Final = (
    "The remote has no address to fetch the voice at: with a local blob store, set "
    "COATCHECK_PUBLIC_URL to where this server is reached from there."
)
_NOBODY: Final = UUID(int=0)
"""A voice that there is not."""
PAYMENT: Final = ResponseSpec(
    HTTPStatus.PAYMENT_REQUIRED, "The organisation's plan is not active.", Problem, MEDIA_TYPE
)
