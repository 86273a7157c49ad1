"""Submits speech tasks, stores voices, and reads both on behalf of their users."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from coatcheck.core.extension import EngineContext, EngineExtension
from coatcheck.core.queries.jobs import LISTING, TookTooLong
from coatcheck.core.queries.org_jobs import Retried
from coatcheck.core.submission import Submission, Ticket
from coatcheck.db.connection import PINNED_PLANS
from coatcheck.db.errors import retried
from coatcheck.domain.changes import ChangeCursor, Changes
from coatcheck.domain.errors import DatabaseUnavailable, JobNotFound
from coatcheck.domain.ids import InvalidId, from_text, new_id
from coatcheck.domain.job import NewJob
from coatcheck.domain.states import State
from coatcheck.products.speech import queries
from coatcheck.products.speech.blob_keys import reference_key
from coatcheck.products.speech.errors import GenerationNotFound, VoiceNotFound
from coatcheck.products.speech.model import (
    SPEECH_ENDPOINTS,
    SpeechReader,
    SpeechType,
    StoredSpeechTask,
    StoredVoice,
    generation_of,
)
from coatcheck.products.speech.queries import NewSpeech


class SpeechRepository(EngineExtension):
    """An extension of the engine. Its reads run under row security: the database returns only rows
    of the reader (``products/speech/queries.py``)."""

    def __init__(self, context: EngineContext) -> None:
        self._preparer = context.preparer
        self._submitter = context.submitter
        self._read_db = context.db("read speech", server_settings=PINNED_PLANS)
        self._write_db = context.db("speech", server_settings=PINNED_PLANS)
        self._changes_db = context.db("speech changes", server_settings=LISTING)

    # Tasks

    async def submit(
        self,
        reader: SpeechReader,
        job_id: UUID,
        payload: bytes,
        *,
        kind: SpeechType,
        voice: UUID | None,
        language: str,
        text: str,
        description: str | None = None,
        clone: UUID | None = None,
        **options: Any,
    ) -> Ticket:
        """Create the job ``job_id`` with its generation, or find the job that its key names.
        ``options`` are the fields of Submission.

        Raises VoiceNotFound if the user has no such voice, unless the key is known.
        """
        submission = Submission(SPEECH_ENDPOINTS[kind], payload, org=reader.org, **options)
        job = self._preparer.prepare(submission, job_id)
        speech = NewSpeech(
            generation_of(job_id), reader.user, voice, language, text, description, clone
        )
        looked_for_key = False

        async def insert(jobs: Sequence[NewJob]) -> Mapping[UUID, State]:
            nonlocal looked_for_key
            (one,) = jobs
            created = await queries.submit(self._write_db, one, speech)
            if created is None and looked_for_key:
                raise VoiceNotFound("there is no such voice")
            looked_for_key = True
            return created or {}

        return await self._submitter.submit_apart(self._write_db, job, insert)

    def retrying(
        self, reader: SpeechReader, job: UUID, voice: UUID | None, payload: bytes
    ) -> Callable[[NewJob], Awaitable[Retried | None]]:
        """A function that retries the task of ``job``: it creates a new generation of the same text
        with the given payload, and raises VoiceNotFound if the voice was deleted."""

        async def send(new: NewJob) -> Retried | None:
            return await queries.retry(
                self._write_db,
                job,
                replace(new, payload=payload),
                user=reader.user,
                voice=voice,
                generation=generation_of(new.uuid),
            )

        return send

    async def task(self, reader: SpeechReader, job_id: str) -> StoredSpeechTask:
        """A task of the reader's. Raises JobNotFound for any other id."""
        try:
            uuid = from_text(job_id)
        except InvalidId as error:
            raise JobNotFound("there is no such task") from error
        generation = generation_of(uuid)
        found = await retried(lambda: queries.task(self._read_db, reader, generation))
        if found is None:
            raise JobNotFound("there is no such task")
        return found

    async def generation(self, reader: SpeechReader, generation_id: str) -> StoredSpeechTask:
        """The task of a generation. Raises GenerationNotFound for any other id."""
        try:
            uuid = from_text(generation_id)
        except InvalidId as error:
            raise GenerationNotFound("there is no such generation") from error
        found = await retried(lambda: queries.task(self._read_db, reader, uuid))
        if found is None or found.type is SpeechType.CLONE:
            raise GenerationNotFound("there is no such generation")
        return found

    async def tasks(
        self,
        reader: SpeechReader,
        *,
        after: UUID | None = None,
        states: Sequence[State] | None = None,
        types: Collection[SpeechType] = tuple(SpeechType),
        limit: int = 50,
    ) -> Sequence[StoredSpeechTask]:
        """The reader's tasks of these types, newest first, with texts cut short. ``after`` is the
        id of a generation."""
        endpoints = [SPEECH_ENDPOINTS[each] for each in types]
        return await retried(
            lambda: queries.tasks(
                self._read_db,
                reader,
                after=after,
                states=states,
                endpoints=endpoints,
                limit=limit,
            )
        )

    async def changes(
        self, reader: SpeechReader, cursor: ChangeCursor, *, rows_max: int, limit: int
    ) -> Changes[StoredSpeechTask]:
        """Those of the reader's newest ``rows_max`` tasks that changed, with texts cut short."""
        try:
            return await retried(
                lambda: queries.changes(
                    self._changes_db, reader, cursor, rows_max=rows_max, limit=limit
                )
            )
        except TookTooLong as error:
            raise DatabaseUnavailable("reading the changes took too long") from error

    # Voices

    async def create_voice(self, reader: SpeechReader) -> tuple[UUID, str]:
        """Create a voice that is about to be uploaded; returns its id and the key for its audio.

        Call ``complete_voice`` or ``abandon_voice`` afterwards; without either, the voice is
        removed after an hour.
        """
        uuid = new_id()
        key = reference_key(reader.user, uuid)
        await retried(lambda: queries.create_voice(self._write_db, reader, uuid, key))
        return uuid, key

    async def complete_voice(
        self, reader: SpeechReader, uuid: UUID, *, size: int, sha256: bytes, seconds: float
    ) -> StoredVoice | None:
        """Mark the upload as complete; returns the voice. None if it was removed meanwhile."""
        return await retried(
            lambda: queries.complete_voice(
                self._write_db, reader.org, uuid, size=size, sha256=sha256, seconds=seconds
            )
        )

    async def abandon_voice(self, reader: SpeechReader, uuid: UUID) -> None:
        """Mark a failed upload for removal."""
        await retried(lambda: queries.abandon_voice(self._write_db, reader.org, uuid))

    async def voice(self, reader: SpeechReader, voice_id: str) -> StoredVoice:
        """A voice of the reader's. Raises VoiceNotFound for any other id."""
        uuid = _voice_uuid(voice_id)
        found = await retried(lambda: queries.voice(self._read_db, reader, uuid))
        if found is None:
            raise VoiceNotFound("there is no such voice")
        return found

    async def voices(
        self, reader: SpeechReader, *, after: UUID | None = None, limit: int = 50
    ) -> Sequence[StoredVoice]:
        """The reader's voices, newest first."""
        return await retried(
            lambda: queries.voices(self._read_db, reader, after=after, limit=limit)
        )

    async def delete_voice(self, reader: SpeechReader, voice_id: str) -> None:
        """Delete a voice of the reader's; its audio is deleted soon after. Raises VoiceNotFound."""
        uuid = _voice_uuid(voice_id)
        if not await retried(lambda: queries.delete_voice(self._write_db, reader, uuid)):
            raise VoiceNotFound("there is no such voice")


def _voice_uuid(voice_id: str) -> UUID:
    try:
        return from_text(voice_id)
    except InvalidId as error:
        raise VoiceNotFound("there is no such voice") from error
