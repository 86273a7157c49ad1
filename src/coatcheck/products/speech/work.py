"""What a remote is asked to speak: a request, the voice and clone it names, and its payload."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from coatcheck.core import Engine
from coatcheck.domain.errors import FieldIssue, InvalidInput, JobNotFound
from coatcheck.domain.ids import to_text
from coatcheck.domain.limits import SIGNED_URL_SECONDS_MAX
from coatcheck.domain.remote_work import Destination, encode_work
from coatcheck.products.speech.model import (
    AUDIO_TYPE,
    OPERATOR_TARGET,
    SpeechNotConfigured,
    SpeechReader,
    SpeechType,
    StoredSpeechTask,
    StoredVoice,
    VoiceNotFound,
)
from coatcheck.products.speech.repository import SpeechRepository
from coatcheck.settings import Settings

_encode: Final = msgspec.json.Encoder().encode
_NO_ADDRESS: Final = (
    "The remote has no address to fetch the voice from: with a local blob store, set "
    "COATCHECK_PUBLIC_URL to the address at which the remote reaches this server."
)


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


class SpeechWork:
    """Finds what a request names, and makes the payload of its task."""

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self._engine = engine
        self._settings = settings

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
                voice = await self._engine.extension(SpeechRepository).voice(reader, work.voice_id)
            if work.clone_id is not None:
                clone = await self._clone(reader, work)
        except (VoiceNotFound, InvalidInput):
            if key is None or not await self._engine.knows_key(key, org=reader.org):
                raise
            return None
        return SpeechSources(voice, clone)

    async def _clone(self, reader: SpeechReader, work: SpeechRequest) -> StoredSpeechTask:
        """The completed task that made the request's clone. Every problem with it gets the same
        error."""
        assert work.clone_id is not None
        try:
            task = await self._engine.extension(SpeechRepository).task(reader, work.clone_id)
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
        signed = await self._engine.signer.signed_get(
            blob_key, SIGNED_URL_SECONDS_MAX, file_name=file_name, media_type=media_type
        )
        if not signed.url.startswith("/"):
            return signed.url
        public_url = self._settings.public_url
        return public_url + signed.url if public_url else None


def _no_clone() -> InvalidInput:
    return InvalidInput(
        [FieldIssue("clone_id", "must be a completed clone of this voice, with its file stored")]
    )
