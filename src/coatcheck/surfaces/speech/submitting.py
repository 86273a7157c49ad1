"""Having a text spoken: the route by which it is handed in."""

from __future__ import annotations

import re
from functools import partial
from http import HTTPStatus
from typing import Any, Final
from uuid import UUID

import msgspec

from coatcheck.control.call import Call
from coatcheck.control.idempotency import read_idempotency_key
from coatcheck.control.job_answers import (
    IDEMPOTENCY_PARAMETERS,
    TICKET_HEADERS,
    WAIT_PARAMETERS,
    check_mismatch,
)
from coatcheck.control.operations import Answer, Operation, RequestBody
from coatcheck.control.pace import kind_of
from coatcheck.control.preferences import read_preferences
from coatcheck.control.problems import MEDIA_TYPE, Problem
from coatcheck.control.reply import Reply, StreamReply
from coatcheck.control.struct_bodies import read_body
from coatcheck.control.webhook_urls import check_webhook_url
from coatcheck.domain.errors import (
    FieldIssue,
    InvalidInput,
    VoiceNotFound,
)
from coatcheck.domain.identity import Scope
from coatcheck.domain.ids import new_id
from coatcheck.domain.lanes import Lane
from coatcheck.domain.limits import PAYLOAD_BYTES_MAX, SIGNED_URL_SECONDS_MAX
from coatcheck.domain.remote_work import Destination, encode_work
from coatcheck.domain.speech import (
    AUDIO_TYPE,
    LANGUAGE,
    OPERATOR_TARGET,
    SPEECH_ENDPOINT,
    Reader,
    Voice,
)
from coatcheck.engine import Ticket
from coatcheck.surfaces.speech import words
from coatcheck.surfaces.speech.scene import Scene, stored_key

GENERATE: Final = "/generate"
TAG: Final = "speech"
_WEBHOOKS: Final = ("webhook_url", "state_webhook_url")
_encode: Final = msgspec.json.Encoder().encode


class RemoteBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the remote is given."""

    text: str
    language: str
    voice_id: str
    reference_url: str | None = None


class Submitting:
    """The route by which a text is handed in."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    async def generate(self, call: Call) -> Reply | StreamReply:
        """POST /generate: answered as soon as the task is safe."""
        scene, org = self._scene, call.principal.org
        reader = scene.reader(call)
        scene.check_configured()
        preferences = read_preferences(call)
        asked = await read_body(call, words.Generate, PAYLOAD_BYTES_MAX)
        _check(asked)
        ticket = await self._handed_in(call, reader, asked)
        check_mismatch(ticket, preferences)
        view = None
        if preferences.wait is not None:
            view = await scene.answers.held(call, ticket.id, org, preferences.wait)
        return await scene.answers.submitted(
            ticket,
            scene.voice(call),
            kind=kind_of(org, SPEECH_ENDPOINT, reader.user),
            lane=Lane.STANDARD,
            preferences=preferences,
            view=view,
        )

    async def _handed_in(self, call: Call, reader: Reader, asked: words.Generate) -> Ticket:
        scene, principal = self._scene, call.principal
        said = read_idempotency_key(call)
        key = None if said is None else stored_key(principal, said)
        voice = await self._voice(reader, asked.voice_id, key)
        await self._scene.gate.check_unless_known(
            call.principal, key, partial(self._scene.engine.knows_key, org=call.principal.org)
        )
        told = await self._told(asked, principal.org)
        return await scene.engine.speech.submit(
            reader,
            new_id(),
            await self.payload(asked.text, asked.language, asked.voice_id, voice),
            voice=_NOBODY if voice is None else voice.uuid,
            language=asked.language,
            text=asked.text,
            # URLs are signed anew each time: they tell nothing of what was asked.
            fingerprint_of=_encode([asked.voice_id, asked.language, asked.text]),
            owner=principal.owner,
            flow=reader.user,
            lane=Lane.STANDARD,
            idempotency_key=key,
            request_id=call.request_id,
            timeout=scene.settings.speech_timeout_seconds,
            **told,
        )

    async def payload(self, text: str, language: str, voice_id: str, voice: Voice | None) -> bytes:
        """The payload of a task: what the remote is given, and where it is."""
        body = RemoteBody(text, language, voice_id, await self._reference_url(voice))
        return encode_work(Destination(operator=OPERATOR_TARGET), _encode(body))

    async def _voice(self, reader: Reader, voice_id: str, key: str | None) -> Voice | None:
        """The voice. It may be gone by now if the key is known: that job was made with it."""
        try:
            return await self._scene.engine.speech.voice(reader, voice_id)
        except VoiceNotFound:
            if key is None or not await self._scene.engine.knows_key(key, org=reader.org):
                raise
            return None

    async def _reference_url(self, voice: Voice | None) -> str | None:
        """Where the remote hears what the voice is like; None if there is no address of ours that
        it could ask."""
        if voice is None:
            return None
        signed = await self._scene.engine.signer.signed_get(
            voice.blob_key,
            SIGNED_URL_SECONDS_MAX,
            file_name="reference.wav",
            media_type=AUDIO_TYPE,
        )
        if not signed.url.startswith("/"):
            return signed.url
        public_url = self._scene.settings.public_url
        return public_url + signed.url if public_url else None

    async def _told(self, asked: words.Generate, org: str) -> dict[str, Any]:
        """Who is to be told of the task. Raises UrlForbidden unless they may be called as things
        are now; whoever posts to them looks again."""
        told: dict[str, Any] = {}
        for name in _WEBHOOKS:
            url: str | None = getattr(asked, name)
            if url is None:
                continue
            await check_webhook_url(name, url, self._scene.guard, org)
            told[name] = url
        return told


def _check(asked: words.Generate) -> None:
    """What the document says by patterns, in words."""
    issues = []
    if not asked.text.strip():
        issues.append(FieldIssue("text", "has nothing to say: it is all white space"))
    if re.search(LANGUAGE, asked.language) is None:
        issues.append(FieldIssue("language", "must be a language tag, such as en, en-gb or pt-BR"))
    if issues:
        raise InvalidInput(issues)


def operations(scene: Scene) -> list[Operation]:
    submitting = Submitting(scene)
    return [
        Operation(
            methods=("POST",),
            path=GENERATE,
            name="generate_speech",
            summary="Have a text spoken by a voice.",
            description="Answered as soon as the task is safe; it is spoken elsewhere.",
            handler=submitting.generate,
            access=Scope.SUBMIT,
            tag=TAG,
            parameters=(*IDEMPOTENCY_PARAMETERS, *WAIT_PARAMETERS),
            body=RequestBody("What to say.", words.Generate),
            answers=(
                Answer(
                    HTTPStatus.ACCEPTED,
                    "The task is safe.",
                    words.SpeechTicket,
                    headers=TICKET_HEADERS,
                ),
                Answer(
                    HTTPStatus.OK,
                    "The task has ended within the time that the caller was willing to wait.",
                    words.SpeechTask,
                    headers=TICKET_HEADERS,
                ),
                PAYMENT,
                Answer(
                    HTTPStatus.NOT_FOUND,
                    "The caller has no such voice (`voice_not_found`); or no remote is set "
                    "(`speech_not_configured`).",
                    Problem,
                    MEDIA_TYPE,
                ),
                Answer(
                    HTTPStatus.UNPROCESSABLE_ENTITY,
                    "A field does not fit; or the idempotency key is known with another request, "
                    "and the caller was strict; or a webhook's URL may not be called.",
                    Problem,
                    MEDIA_TYPE,
                ),
            ),
        )
    ]


_NOBODY: Final = UUID(int=0)
"""A voice that there is not."""
PAYMENT: Final = Answer(
    HTTPStatus.PAYMENT_REQUIRED, "The organisation's plan is not active.", Problem, MEDIA_TYPE
)
