"""Routes that submit tasks: texts to speak, designs to preview, voices to clone."""

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
    """The request that the remote gets. Without a ``type`` it is a text to speak."""

    language: str
    text: str = ""
    type: SpeechType = SpeechType.GENERATE
    voice_id: str | None = None
    description: str | None = None
    reference_url: str | None = None
    prompt_url: str | None = None


@dataclass(frozen=True, slots=True)
class SpeechRequest:
    """The work of a task. ``voice_id`` is None for a preview, which has a description."""

    type: SpeechType
    language: str
    text: str
    voice_id: str | None = None
    description: str | None = None
    clone_id: str | None = None

    @property
    def fingerprint(self) -> bytes:
        """Identifies a request for idempotency. Signed URLs are left out: they always differ."""
        fields = [self.voice_id, self.language, self.text]
        if self.type is not SpeechType.GENERATE or self.clone_id is not None:
            fields += [self.type, self.description, self.clone_id]
        return _encode(fields)


class SpeechSources(NamedTuple):
    """The voice and the clone that a request names, as stored."""

    voice: StoredVoice | None
    clone: StoredSpeechTask | None


class SpeechSubmitRoutes:
    """The routes that submit tasks."""

    def __init__(self, context: SpeechContext) -> None:
        self._context = context

    async def generate(self, request: Request) -> Response | StreamResponse:
        """POST /generate: answers as soon as the task is stored."""
        self._check_caller(request)
        body = await read_body(request, schemas.Generate, PAYLOAD_BYTES_MAX)
        work = SpeechRequest(
            SpeechType.GENERATE,
            body.language,
            body.text,
            voice_id=body.voice_id,
            clone_id=body.clone_id,
        )
        return await self._submitted(request, work, body)

    async def preview_design(self, request: Request) -> Response | StreamResponse:
        """POST /voices/design-preview: speaks a text with a voice that is only described."""
        self._check_caller(request)
        body = await read_body(request, schemas.DesignPreview, PAYLOAD_BYTES_MAX)
        work = SpeechRequest(
            SpeechType.DESIGN_PREVIEW, body.language, body.text, description=body.description
        )
        return await self._submitted(request, work, body)

    async def clone(self, request: Request) -> Response | StreamResponse:
        """POST /voices/{id}/clone: makes a prompt of a voice, with which texts can be spoken."""
        self._check_caller(request)
        body = await read_body(request, schemas.Clone, PAYLOAD_BYTES_MAX)
        work = SpeechRequest(
            SpeechType.CLONE, body.language, body.transcript or "", voice_id=request.params["id"]
        )
        return await self._submitted(request, work, body)

    def _check_caller(self, request: Request) -> None:
        """Checks made before the body is read. Raises UserRequired and SpeechNotConfigured."""
        self._context.reader(request)
        self._context.check_configured()

    async def _submitted(
        self,
        request: Request,
        work: SpeechRequest,
        body: schemas.Generate | schemas.DesignPreview | schemas.Clone,
    ) -> Response | StreamResponse:
        context, org = self._context, request.principal.org
        reader, preferences = context.reader(request), read_preferences(request)
        _check(work)
        ticket = await self._ticket(request, reader, work, await self._webhook_urls(body, org))
        check_mismatch(ticket, preferences)
        view = None
        if preferences.wait is not None:
            view = await context.responses.wait_with_result(
                request, ticket.id, org, preferences.wait
            )
        return await context.responses.submitted(
            ticket,
            context.presenter(request, work.type),
            kind=kind_of(org, SPEECH_ENDPOINTS[work.type], reader.user),
            lane=Lane.STANDARD,
            preferences=preferences,
            view=view,
        )

    async def _ticket(
        self, request: Request, reader: SpeechReader, work: SpeechRequest, webhooks: dict[str, Any]
    ) -> Ticket:
        context, principal = self._context, request.principal
        given_key = read_idempotency_key(request)
        key = None if given_key is None else stored_key(principal, given_key)
        sources = await self.find_sources(reader, work, key)
        await context.gate.check_unless_known(
            principal, key, partial(context.engine.knows_key, org=principal.org)
        )
        # If the voice was deleted, the submission can only find the job that the key names.
        is_replay = sources is None
        voice = _NO_VOICE if is_replay else None
        if sources is not None and sources.voice is not None:
            voice = sources.voice.uuid
        clone = None if sources is None else sources.clone
        return await context.engine.extension(SpeechRepository).submit(
            reader,
            new_id(),
            await self.payload(work, sources),
            kind=work.type,
            voice=voice,
            language=work.language,
            text=work.text,
            description=None if is_replay else work.description,
            clone=None if clone is None else clone.view.uuid,
            fingerprint_of=work.fingerprint,
            owner=principal.owner,
            queue_key=reader.user,
            lane=Lane.STANDARD,
            idempotency_key=key,
            request_id=request.request_id,
            timeout=context.settings.speech_timeout_seconds,
            **webhooks,
        )

    async def payload(self, work: SpeechRequest, sources: SpeechSources | None) -> bytes:
        """The payload of a task: the remote's address, and the request that it gets. Raises
        SpeechNotConfigured if the remote could not fetch the voice."""
        reference_url = prompt_url = None
        if sources is not None:
            reference_url = await self._reference_url(sources.voice)
            prompt_url = await self._prompt_url(sources.clone)
            if work.type is SpeechType.CLONE and reference_url is None:
                raise SpeechNotConfigured(_NO_ADDRESS)
        body = RemoteBody(
            work.language,
            work.text,
            work.type,
            work.voice_id,
            work.description,
            reference_url,
            prompt_url,
        )
        return encode_work(Destination(operator=OPERATOR_TARGET), _encode(body))

    async def find_sources(
        self, reader: SpeechReader, work: SpeechRequest, key: str | None
    ) -> SpeechSources | None:
        """The voice and clone that the request names.

        None if one of them was deleted and the key is known: its job was created when they
        existed. Raises VoiceNotFound, and InvalidInput for a clone.
        """
        voice = clone = None
        try:
            if work.voice_id is not None:
                voice = await self._context.engine.extension(SpeechRepository).voice(
                    reader, work.voice_id
                )
            if work.clone_id is not None:
                clone = await self._clone(reader, work)
        except (VoiceNotFound, InvalidInput):
            if key is None or not await self._context.engine.knows_key(key, org=reader.org):
                raise
            return None
        return SpeechSources(voice, clone)

    async def _clone(self, reader: SpeechReader, work: SpeechRequest) -> StoredSpeechTask:
        """The completed task that made the request's clone. Every problem with it gets the same
        error."""
        assert work.clone_id is not None
        try:
            task = await self._context.engine.extension(SpeechRepository).task(
                reader, work.clone_id
            )
        except JobNotFound:
            raise _no_clone() from None
        is_of_voice = task.spoken.voice is not None and to_text(task.spoken.voice) == work.voice_id
        if task.type is not SpeechType.CLONE or task.audio is None or not is_of_voice:
            raise _no_clone()
        return task

    async def _reference_url(self, voice: StoredVoice | None) -> str | None:
        """The URL at which the remote fetches the voice's audio; None if this server has no address
        that the remote could reach."""
        if voice is None:
            return None
        return await self._signed(voice.blob_key, "reference.wav", AUDIO_TYPE)

    async def _prompt_url(self, clone: StoredSpeechTask | None) -> str | None:
        """The URL at which the remote fetches the prompt that it made of the voice."""
        if clone is None:
            return None
        file = clone.audio
        assert file is not None, "checked by _clone"
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

    async def _webhook_urls(
        self, body: schemas.Generate | schemas.DesignPreview | schemas.Clone, org: str
    ) -> dict[str, Any]:
        """The task's webhook URLs. Raises UrlForbidden if one may not be called now; each delivery
        checks it again."""
        urls: dict[str, Any] = {}
        for name in _WEBHOOKS:
            url: str | None = getattr(body, name)
            if url is None:
                continue
            await check_webhook_url(name, url, self._context.guard, org)
            urls[name] = url
        return urls


def _check(work: SpeechRequest) -> None:
    """Check the patterns of the OpenAPI document, with errors in words."""
    issues = []
    if work.type is not SpeechType.CLONE and not work.text.strip():
        issues.append(FieldIssue("text", "must not be only white space"))
    if work.description is not None and not work.description.strip():
        issues.append(FieldIssue("description", "must not be only white space"))
    if re.search(LANGUAGE, work.language) is None:
        issues.append(FieldIssue("language", "must be a language tag, such as en, en-gb or pt-BR"))
    if issues:
        raise InvalidInput(issues)


def _no_clone() -> InvalidInput:
    return InvalidInput(
        [FieldIssue("clone_id", "must be a completed clone of this voice, with its file stored")]
    )


def routes(context: SpeechContext) -> list[Route]:
    submitting = SpeechSubmitRoutes(context)
    return [
        _route(
            path=GENERATE,
            name="generate_speech",
            summary="Speak a text with a voice.",
            handler=submitting.generate,
            body=RequestBody("The text, language and voice.", schemas.Generate),
            not_found="The caller has no such voice (`voice_not_found`); or no remote is set "
            "(`speech_not_configured`).",
        ),
        _route(
            path=DESIGN_PREVIEW,
            name="preview_voice_design",
            summary="Speak a text with a voice that is only described.",
            handler=submitting.preview_design,
            body=RequestBody("The voice's description, and the text.", schemas.DesignPreview),
            not_found="No remote is set (`speech_not_configured`).",
        ),
        _route(
            path=CLONE,
            name="clone_voice",
            summary="Clone a voice: the remote makes a prompt of it, with which texts are spoken.",
            handler=submitting.clone,
            parameters=(Parameter("id", "path", "The voice's id.", ULID),),
            body=RequestBody("The language and transcript of the recording.", schemas.Clone),
            not_found="The caller has no such voice (`voice_not_found`); or no remote is set, or "
            "it has no address to fetch the voice from (`speech_not_configured`).",
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
    """A route that submits tasks."""
    return Route(
        methods=("POST",),
        path=path,
        name=name,
        summary=summary,
        description="Answers as soon as the task is stored; a remote does the work.",
        handler=handler,
        access=Scope.SUBMIT,
        tag=TAG,
        parameters=(*parameters, *IDEMPOTENCY_PARAMETERS, *WAIT_PARAMETERS),
        body=body,
        responses=(
            ResponseSpec(
                HTTPStatus.ACCEPTED,
                "The task is stored.",
                schemas.SpeechTicket,
                headers=TICKET_HEADERS,
            ),
            ResponseSpec(
                HTTPStatus.OK,
                "The task ended within the requested wait.",
                schemas.SpeechTask,
                headers=TICKET_HEADERS,
            ),
            PAYMENT,
            ResponseSpec(HTTPStatus.NOT_FOUND, not_found, Problem, MEDIA_TYPE),
            ResponseSpec(
                HTTPStatus.UNPROCESSABLE_ENTITY,
                "A field is not valid; or the idempotency key was used with another request, and "
                "the caller asked for strict handling; or a webhook's URL may not be called.",
                Problem,
                MEDIA_TYPE,
            ),
        ),
    )


_NO_ADDRESS: Final = (
    "The remote has no address to fetch the voice from: with a local blob store, set "
    "COATCHECK_PUBLIC_URL to the address at which the remote reaches this server."
)
_NO_VOICE: Final = UUID(int=0)
"""An id that no voice has."""
PAYMENT: Final = ResponseSpec(
    HTTPStatus.PAYMENT_REQUIRED, "The organisation's plan is not active.", Problem, MEDIA_TYPE
)
