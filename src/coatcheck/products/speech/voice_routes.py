"""Voices: the reference audio of a user's, uploaded, shown and deleted."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Final
from uuid import UUID

from coatcheck.domain.errors import BodyTooSlow, CoatcheckError, OutcomeUnknown, WrongMediaType
from coatcheck.domain.identity import Scope
from coatcheck.http import multipart
from coatcheck.http.problems import MEDIA_TYPE, Problem
from coatcheck.http.queries import read_whole_number
from coatcheck.http.request import UPLOAD_SECONDS_MAX, Call
from coatcheck.http.response import Reply, json_reply, raw_header
from coatcheck.http.routing import ULID, Answer, Operation, Parameter, RequestBody
from coatcheck.products.speech import schemas as words
from coatcheck.products.speech.context import PAGE_ROWS, PAGE_ROWS_MAX, Scene, read_cursor
from coatcheck.products.speech.errors import AudioRejected
from coatcheck.products.speech.model import (
    AUDIO_TYPE,
    VOICE_BYTES_MAX,
    VOICE_SECONDS_MAX,
    VOICE_SECONDS_MIN,
    Reader,
    Voice,
)
from coatcheck.products.speech.presenter import shown_voice
from coatcheck.products.speech.read_routes import PAGE_PARAMETERS
from coatcheck.products.speech.repository import SpeechQueries
from coatcheck.products.speech.submit_routes import PAYMENT, TAG
from coatcheck.products.speech.wav import NotWave, WaveReader, WaveRejected

_log = logging.getLogger(__name__)

VOICES: Final = "/voices"
VOICE: Final = VOICES + "/{id}"
PART: Final = "file"


class Voices:
    """The routes of voices."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    async def create(self, call: Call) -> Reply:
        """POST /voices: the audio is checked as it comes, and stored in no other place."""
        scene = self._scene
        reader = scene.reader(call)
        await scene.gate.check_plan(call.principal)
        async with scene.room.entered(reader.org):
            voice = await self._take_in(reader, _Recording(call))
        location = raw_header("location", f"{VOICES}/{voice.id}")
        return json_reply(await shown_voice(scene.engine, voice), HTTPStatus.CREATED, [location])

    async def _take_in(self, reader: Reader, recording: _Recording) -> Voice:
        """The row, then the audio, then the word that it is whole. Whatever goes wrong between, the
        row says what there is to be removed (``products/speech/maintenance.py``)."""
        desk, blobs = self._scene.engine.extension(SpeechQueries), self._scene.engine.blobs
        await recording.begin()
        uuid, key = await desk.begin_voice(reader)
        try:
            stored = await blobs.put(
                key, recording.pieces(), media_type=AUDIO_TYPE, file_name="reference.wav"
            )
            voice = await desk.finish_voice(
                reader,
                uuid,
                size=stored.size,
                sha256=stored.sha256,
                seconds=recording.seconds,
            )
        except OutcomeUnknown:
            raise  # it may be there
        except CoatcheckError:
            await self._give_up(reader, uuid)
            raise
        if voice is None:
            await blobs.delete([key])
            raise BodyTooSlow(UPLOAD_SECONDS_MAX)
        return voice

    async def _give_up(self, reader: Reader, uuid: UUID) -> None:
        try:
            await self._scene.engine.extension(SpeechQueries).give_up_voice(reader, uuid)
        except CoatcheckError:
            _log.warning("an upload that came to nothing is left to be removed by its age")

    async def one(self, call: Call) -> Reply:
        scene = self._scene
        voice = await scene.engine.extension(SpeechQueries).voice(
            scene.reader(call), call.params["id"]
        )
        return json_reply(await shown_voice(scene.engine, voice))

    async def page(self, call: Call) -> Reply:
        scene, query = self._scene, call.query
        limit = read_whole_number(query, "limit", 1, PAGE_ROWS_MAX, default=PAGE_ROWS)
        voices = await scene.engine.extension(SpeechQueries).voices(
            scene.reader(call), after=read_cursor(query.get("cursor")), limit=limit
        )
        items = [await shown_voice(scene.engine, voice) for voice in voices]
        return json_reply(
            words.VoicePage(items, items[-1].voice_id if len(items) == limit else None)
        )

    async def delete(self, call: Call) -> Reply:
        scene = self._scene
        await scene.engine.extension(SpeechQueries).delete_voice(
            scene.reader(call), call.params["id"]
        )
        return Reply(HTTPStatus.NO_CONTENT)


class _Recording:
    """The audio of a form, checked on its way. Raises what is wrong with it as soon as it shows."""

    def __init__(self, call: Call) -> None:
        self._parts = multipart.file_part(call, PART, VOICE_BYTES_MAX)
        self._wave = WaveReader()
        self._first = b""
        self.seconds = 0.0
        """How long it plays, once all of it has come."""

    async def begin(self) -> None:
        """Read its first bytes: most of what is no WAV file is refused here."""
        self._first = self._fed(await anext(self._parts, b""))

    async def pieces(self) -> AsyncIterator[bytes]:
        if self._first:
            yield self._first
        async for piece in self._parts:
            yield self._fed(piece)
        try:
            self.seconds = self._wave.duration()
        except (NotWave, WaveRejected) as error:
            raise _refusal(error) from error
        if not VOICE_SECONDS_MIN <= self.seconds <= VOICE_SECONDS_MAX:
            raise AudioRejected(
                "duration",
                f"The recording plays for {self.seconds:.3g} seconds: it must be "
                f"{VOICE_SECONDS_MIN:g} to {VOICE_SECONDS_MAX:g}.",
            )

    def _fed(self, piece: bytes) -> bytes:
        try:
            self._wave.feed(piece)
        except (NotWave, WaveRejected) as error:
            raise _refusal(error) from error
        return piece


def _refusal(error: NotWave | WaveRejected) -> CoatcheckError:
    if isinstance(error, NotWave):
        return WrongMediaType(f"Send a WAV file as the part {PART!r}: {error}.")
    return AudioRejected(error.reason, f"The WAV file is of no use: {error}.")


def operations(scene: Scene) -> list[Operation]:
    voices = Voices(scene)
    voice_id = Parameter("id", "path", "The voice's id.", ULID)
    return [
        Operation(
            methods=("POST",),
            path=VOICES,
            name="create_voice",
            summary="Upload the reference audio of a voice.",
            handler=voices.create,
            access=Scope.SUBMIT,
            tag=TAG,
            body=RequestBody(
                "A form with one part `file`: a WAV file, PCM or float, to 50 MiB, of 1 second to "
                "10 minutes.",
                schema=_FORM,
                media_type=multipart.MEDIA_TYPE,
            ),
            answers=(
                Answer(
                    HTTPStatus.CREATED,
                    "The voice can be used.",
                    words.Voice,
                    headers={"Location": "Where the voice is read."},
                ),
                PAYMENT,
                Answer(
                    HTTPStatus.UNPROCESSABLE_ENTITY,
                    "The recording is of no use (`audio_rejected`), and why.",
                    Problem,
                    MEDIA_TYPE,
                ),
            ),
        ),
        Operation(
            methods=("GET",),
            path=VOICES,
            name="voices",
            summary="The caller's voices, newest first.",
            handler=voices.page,
            access=Scope.READ,
            tag=TAG,
            parameters=PAGE_PARAMETERS,
            answers=(Answer(HTTPStatus.OK, "A page of voices.", words.VoicePage),),
        ),
        Operation(
            methods=("GET",),
            path=VOICE,
            name="voice",
            summary="A voice, and the signed URL of its reference audio.",
            handler=voices.one,
            access=Scope.READ,
            tag=TAG,
            parameters=(voice_id,),
            answers=(Answer(HTTPStatus.OK, "The voice.", words.Voice),),
        ),
        Operation(
            methods=("DELETE",),
            path=VOICE,
            name="delete_voice",
            summary="Delete a voice, and its reference audio.",
            description="What it has spoken stays.",
            handler=voices.delete,
            access=Scope.SUBMIT,
            tag=TAG,
            parameters=(voice_id,),
            answers=(Answer(HTTPStatus.NO_CONTENT, "There is no such voice now.", empty=True),),
        ),
    ]


_FORM: Final = {
    "type": "object",
    "properties": {PART: {"type": "string", "contentMediaType": AUDIO_TYPE}},
    "required": [PART],
    "additionalProperties": False,
}
