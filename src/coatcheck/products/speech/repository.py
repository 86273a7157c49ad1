"""What is said for users, and by which voices: handed in, and read as each user is let see it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from coatcheck.blobs.keys import reference_key
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
from coatcheck.products.speech import queries as speech_store
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
    """Part of the engine. Whatever it reads for a reader, the database would show them nothing
    else (``products/speech/queries.py``)."""

    def __init__(self, context: EngineContext) -> None:
        self._preparer = context.preparer
        self._submitter = context.submitter
        self._read_db = context.db("read speech", server_settings=PINNED_PLANS)
        self._write_db = context.db("speech", server_settings=PINNED_PLANS)
        self._changes_line = context.db("speech changes", server_settings=LISTING)

    # What is said

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
        """Create the job ``job_id`` together with what it says, or find the one that its key names.
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
            created = await speech_store.submit(self._write_db, one, speech)
            if created is None and looked_for_key:
                raise VoiceNotFound("there is no such voice")
            looked_for_key = True
            return created or {}

        return await self._submitter.submit_apart(self._write_db, job, insert)

    def retrying(
        self, reader: SpeechReader, job: UUID, voice: UUID | None, payload: bytes
    ) -> Callable[[NewJob], Awaitable[Retried | None]]:
        """How a task is done again: as a new generation of what ``job`` was to say, with a payload
        of its own. What it gives raises VoiceNotFound if the voice is gone."""

        async def send(new: NewJob) -> Retried | None:
            return await speech_store.retry(
                self._write_db,
                job,
                replace(new, payload=payload),
                user=reader.user,
                voice=voice,
                generation=generation_of(new.uuid),
            )

        return send

    async def task(self, reader: SpeechReader, job_id: str) -> StoredSpeechTask:
        """A task of the reader's. Raises JobNotFound, whatever the reason."""
        try:
            uuid = from_text(job_id)
        except InvalidId as error:
            raise JobNotFound("there is no such task") from error
        generation = generation_of(uuid)
        found = await retried(lambda: speech_store.task(self._read_db, reader, generation))
        if found is None:
            raise JobNotFound("there is no such task")
        return found

    async def generation(self, reader: SpeechReader, generation_id: str) -> StoredSpeechTask:
        """The task that speaks it. Raises GenerationNotFound, whatever the reason."""
        try:
            uuid = from_text(generation_id)
        except InvalidId as error:
            raise GenerationNotFound("there is no such generation") from error
        found = await retried(lambda: speech_store.task(self._read_db, reader, uuid))
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
        """The reader's tasks of these types, newest first, texts cut short. ``after`` is a
        generation's id."""
        endpoints = [SPEECH_ENDPOINTS[each] for each in types]
        return await retried(
            lambda: speech_store.tasks(
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
        """What changed among the reader's newest ``rows_max`` tasks, texts cut short."""
        try:
            return await retried(
                lambda: speech_store.changes(
                    self._changes_line, reader, cursor, rows_max=rows_max, limit=limit
                )
            )
        except TookTooLong as error:
            raise DatabaseUnavailable("the look for changes took too long") from error

    # Voices

    async def begin_voice(self, reader: SpeechReader) -> tuple[UUID, str]:
        """A voice that is about to be uploaded, and the key to put its audio under.

        Call ``finish_voice`` or ``give_up_voice``; if neither is, it is removed after an hour.
        """
        uuid = new_id()
        key = reference_key(reader.user, uuid)
        await retried(lambda: speech_store.begin_voice(self._write_db, reader, uuid, key))
        return uuid, key

    async def finish_voice(
        self, reader: SpeechReader, uuid: UUID, *, size: int, sha256: bytes, seconds: float
    ) -> StoredVoice | None:
        """The voice, now that its audio is there in full. None if it was given up meanwhile."""
        return await retried(
            lambda: speech_store.finish_voice(
                self._write_db, reader.org, uuid, size=size, sha256=sha256, seconds=seconds
            )
        )

    async def give_up_voice(self, reader: SpeechReader, uuid: UUID) -> None:
        """Say that nothing came of an upload."""
        await retried(lambda: speech_store.give_up_voice(self._write_db, reader.org, uuid))

    async def voice(self, reader: SpeechReader, voice_id: str) -> StoredVoice:
        """A voice of the reader's. Raises VoiceNotFound, whatever the reason."""
        uuid = _voice_uuid(voice_id)
        found = await retried(lambda: speech_store.voice(self._read_db, reader, uuid))
        if found is None:
            raise VoiceNotFound("there is no such voice")
        return found

    async def voices(
        self, reader: SpeechReader, *, after: UUID | None = None, limit: int = 50
    ) -> Sequence[StoredVoice]:
        """The reader's voices, newest first."""
        return await retried(
            lambda: speech_store.voices(self._read_db, reader, after=after, limit=limit)
        )

    async def delete_voice(self, reader: SpeechReader, voice_id: str) -> None:
        """Delete a voice of the reader's; its audio goes soon after. Raises VoiceNotFound."""
        uuid = _voice_uuid(voice_id)
        if not await retried(lambda: speech_store.delete_voice(self._write_db, reader, uuid)):
            raise VoiceNotFound("there is no such voice")


def _voice_uuid(voice_id: str) -> UUID:
    try:
        return from_text(voice_id)
    except InvalidId as error:
        raise VoiceNotFound("there is no such voice") from error
