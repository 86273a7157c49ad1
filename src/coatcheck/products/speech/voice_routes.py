"""Routes that upload, show, list and delete a user's voices, which are reference audio."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Final
from uuid import UUID

from coatcheck.domain.errors import BodyTooSlow, CoatcheckError, OutcomeUnknown, WrongMediaType
from coatcheck.domain.tenants import Scope
from coatcheck.http import bodies
from coatcheck.http.job_resource import PLAN_INACTIVE
from coatcheck.http.pages import PAGE_PARAMETERS, read_page
from coatcheck.http.request import UPLOAD_SECONDS_MAX, Request
from coatcheck.http.response import Response, json_response, raw_header
from coatcheck.http.routing import ULID, Parameter, RequestBody, ResponseSpec, Route
from coatcheck.products.speech import schemas
from coatcheck.products.speech.jobs import SpeechJobs
from coatcheck.products.speech.model import (
    AUDIO_TYPE,
    VOICE_BYTES_MAX,
    VOICE_SECONDS_MAX,
    VOICE_SECONDS_MIN,
    AudioRejected,
    SpeechReader,
    StoredVoice,
)
from coatcheck.products.speech.presenter import shown_voice
from coatcheck.products.speech.repository import SpeechRepository
from coatcheck.products.speech.submit_routes import TAG
from coatcheck.products.speech.wav import NotWav, WavReader, WavRejected

_log = logging.getLogger(__name__)

VOICES: Final = "/voices"
VOICE: Final = VOICES + "/{id}"
PART: Final = "file"


class VoiceRoutes:
    """The routes of voices."""

    def __init__(self, context: SpeechJobs) -> None:
        self._context = context

    async def create(self, request: Request) -> Response:
        """POST /voices: checks the audio as it arrives; only the blob store gets a copy."""
        context = self._context
        reader = context.reader(request)
        await context.gate.check_plan(request.principal)
        async with context.room.slot(reader.org):
            voice = await self._store(reader, _Recording(request))
        location = raw_header("location", f"{VOICES}/{voice.id}")
        return json_response(
            await shown_voice(context.engine, voice), HTTPStatus.CREATED, [location]
        )

    async def _store(self, reader: SpeechReader, recording: _Recording) -> StoredVoice:
        """Create the row, store the audio, then mark the voice as complete.

        If a step fails, the row names the blob to remove (``products/speech/maintenance.py``).
        """
        engine = self._context.engine
        repository, blobs = engine.extension(SpeechRepository), engine.blobs
        await recording.begin()
        uuid, key = await repository.create_voice(reader)
        try:
            stored = await blobs.put(
                key, recording.pieces(), media_type=AUDIO_TYPE, file_name="reference.wav"
            )
            voice = await repository.complete_voice(
                reader,
                uuid,
                size=stored.size,
                sha256=stored.sha256,
                seconds=recording.seconds,
            )
        except OutcomeUnknown:
            raise  # the voice may be complete
        except CoatcheckError:
            await self._abandon(reader, uuid)
            raise
        if voice is None:
            await blobs.delete([key])
            raise BodyTooSlow(UPLOAD_SECONDS_MAX)
        return voice

    async def _abandon(self, reader: SpeechReader, uuid: UUID) -> None:
        try:
            await self._context.engine.extension(SpeechRepository).abandon_voice(reader, uuid)
        except CoatcheckError:
            _log.warning("a failed upload is not marked; the cleanup removes it by its age")

    async def one(self, request: Request) -> Response:
        context = self._context
        voice = await context.engine.extension(SpeechRepository).voice(
            context.reader(request), request.params["id"]
        )
        return json_response(await shown_voice(context.engine, voice))

    async def page(self, request: Request) -> Response:
        context = self._context
        asked = read_page(request)
        voices = await context.engine.extension(SpeechRepository).voices(
            context.reader(request), after=asked.after, limit=asked.limit
        )
        items = [await shown_voice(context.engine, voice) for voice in voices]
        return json_response(
            schemas.VoicePage(items, asked.following(items, lambda item: item.voice_id))
        )

    async def delete(self, request: Request) -> Response:
        context = self._context
        await context.engine.extension(SpeechRepository).delete_voice(
            context.reader(request), request.params["id"]
        )
        return Response(HTTPStatus.NO_CONTENT)


class _Recording:
    """The audio of a form, checked as it is read. Raises an error as soon as it finds one."""

    def __init__(self, request: Request) -> None:
        self._parts = bodies.file_part(request, PART, VOICE_BYTES_MAX)
        self._wav = WavReader()
        self._first = b""
        self.seconds = 0.0
        """The duration, once all of it was read."""

    async def begin(self) -> None:
        """Read the first bytes: most files that are not WAV are refused here."""
        self._first = self._fed(await anext(self._parts, b""))

    async def pieces(self) -> AsyncIterator[bytes]:
        if self._first:
            yield self._first
        async for piece in self._parts:
            yield self._fed(piece)
        try:
            self.seconds = self._wav.duration()
        except (NotWav, WavRejected) as error:
            raise _refusal(error) from error
        if not VOICE_SECONDS_MIN <= self.seconds <= VOICE_SECONDS_MAX:
            raise AudioRejected(
                "duration",
                f"The recording is {self.seconds:.3g} seconds long: it must have "
                f"{VOICE_SECONDS_MIN:g} to {VOICE_SECONDS_MAX:g}.",
            )

    def _fed(self, piece: bytes) -> bytes:
        try:
            self._wav.feed(piece)
        except (NotWav, WavRejected) as error:
            raise _refusal(error) from error
        return piece


def _refusal(error: NotWav | WavRejected) -> CoatcheckError:
    if isinstance(error, NotWav):
        return WrongMediaType(f"Send a WAV file as the part {PART!r}: {error}.")
    return AudioRejected(error.reason, f"The WAV file cannot be used: {error}.")


def routes(context: SpeechJobs) -> list[Route]:
    voices = VoiceRoutes(context)
    voice_id = Parameter("id", "path", "The voice's id.", ULID)
    return [
        Route(
            methods=("POST",),
            path=VOICES,
            name="create_voice",
            summary="Upload the reference audio of a voice.",
            handler=voices.create,
            access=Scope.SUBMIT,
            tag=TAG,
            body=RequestBody(
                "A form with one part `file`: a WAV file, PCM or float, at most 50 MiB, from "
                "1 second to 10 minutes long.",
                schema=_FORM,
                media_type=bodies.MEDIA_TYPE,
            ),
            responses=(
                ResponseSpec(
                    HTTPStatus.CREATED,
                    "The voice can be used.",
                    schemas.Voice,
                    headers={"Location": "The URL of the voice."},
                ),
                PLAN_INACTIVE,
                ResponseSpec.problem(
                    HTTPStatus.UNPROCESSABLE_ENTITY,
                    "The recording cannot be used (`audio_rejected`); the detail says why.",
                ),
            ),
        ),
        Route(
            methods=("GET",),
            path=VOICES,
            name="voices",
            summary="List the caller's voices, newest first.",
            handler=voices.page,
            access=Scope.READ,
            tag=TAG,
            parameters=PAGE_PARAMETERS,
            responses=(ResponseSpec(HTTPStatus.OK, "A page of voices.", schemas.VoicePage),),
        ),
        Route(
            methods=("GET",),
            path=VOICE,
            name="voice",
            summary="Read a voice, with the signed URL of its reference audio.",
            handler=voices.one,
            access=Scope.READ,
            tag=TAG,
            parameters=(voice_id,),
            responses=(ResponseSpec(HTTPStatus.OK, "The voice.", schemas.Voice),),
        ),
        Route(
            methods=("DELETE",),
            path=VOICE,
            name="delete_voice",
            summary="Delete a voice and its reference audio.",
            description="Audio that was spoken with it stays.",
            handler=voices.delete,
            access=Scope.SUBMIT,
            tag=TAG,
            parameters=(voice_id,),
            responses=(ResponseSpec(HTTPStatus.NO_CONTENT, "The voice is deleted.", empty=True),),
        ),
    ]


_FORM: Final = {
    "type": "object",
    "properties": {PART: {"type": "string", "contentMediaType": AUDIO_TYPE}},
    "required": [PART],
    "additionalProperties": False,
}
