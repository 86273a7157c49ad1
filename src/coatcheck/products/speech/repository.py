"""Submits speech tasks, stores voices, and reads both on behalf of their users.

Reads on behalf of a user run as a database role that sees only this user's rows: see
``_read_as_user``, and ``core/schema/0012_row_security.sql``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple
from uuid import UUID

import asyncpg

from coatcheck.core import org_jobs
from coatcheck.core.extension import EngineContext, EngineExtension
from coatcheck.core.queries import jobs as job_store
from coatcheck.core.queries.jobs import LISTING
from coatcheck.core.submission import Submission, Ticket
from coatcheck.db.connection import PINNED_PLANS, Connection, RawConnection
from coatcheck.db.queries import Queries, in_transaction
from coatcheck.domain.changes import ChangeCursor, Changes
from coatcheck.domain.errors import DatabaseUnavailable, JobNotFound
from coatcheck.domain.ids import InvalidId, from_text, new_id, newest_possible
from coatcheck.domain.job import NewJob
from coatcheck.domain.listing import FIRST_PAGE, PageQuery
from coatcheck.domain.states import State
from coatcheck.products.speech.model import (
    SPEECH_ENDPOINTS,
    TEXT_CHARACTERS_MAX,
    Audio,
    GenerationNotFound,
    SpeechReader,
    SpeechType,
    Spoken,
    StoredSpeechTask,
    StoredVoice,
    VoiceNotFound,
    generation_of,
    reference_key,
)

sql: Final = Queries("coatcheck.products.speech", "queries")
LISTED_CHARACTERS_MAX: Final = 200
"""The length to which texts in lists are cut."""
_SPOKEN_COLUMNS: Final = 8
_AUDIO_COLUMNS: Final = 5


class SpeechRepository(EngineExtension):
    """An extension of the engine. Its reads run under row security: the database returns only rows
    of the reader."""

    def __init__(self, context: EngineContext) -> None:
        self._preparer = context.preparer
        self._submitter = context.submitter
        self._read_db = context.database.pooled("read speech", server_settings=PINNED_PLANS)
        self._write_db = context.database.pooled("speech", server_settings=PINNED_PLANS)
        self._changes_db = context.database.pooled(
            "speech changes", server_settings=LISTING, is_long=True
        )

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
        looked_for_key = False

        async def create(connection: RawConnection) -> Mapping[UUID, State] | None:
            if not await _lock_voice(connection, reader, voice):
                return None
            created = await job_store.insert(connection, [job])
            if created:
                await sql.fetch(
                    connection,
                    "create_generation",
                    org=reader.org,
                    generation=generation_of(job_id),
                    user=reader.user,
                    job=job_id,
                    voice=voice,
                    language=language,
                    text=text,
                    description=description,
                    clone=clone,
                )
            return created

        async def insert(_: Sequence[NewJob]) -> Mapping[UUID, State]:
            nonlocal looked_for_key
            created = await in_transaction(self._write_db, create)
            if created is None and looked_for_key:
                raise VoiceNotFound("there is no such voice")
            looked_for_key = True
            return created or {}

        return await self._submitter.submit_apart(self._write_db, job, insert)

    def retrying(
        self, reader: SpeechReader, job: UUID, voice: UUID | None, payload: bytes
    ) -> Callable[[NewJob], Awaitable[org_jobs.Retried | None]]:
        """A function that retries the task of ``job``: it creates a new generation of the same text
        with the given payload, and raises VoiceNotFound if the voice was deleted."""

        async def send(new: NewJob) -> org_jobs.Retried | None:
            async def create(connection: RawConnection) -> org_jobs.Retried | None:
                if not await _lock_voice(connection, reader, voice):
                    raise VoiceNotFound("there is no such voice")
                retried = await org_jobs.retry(connection, job, replace(new, payload=payload))
                if retried is not None and retried.created:
                    await sql.fetch(
                        connection,
                        "repeat_generation",
                        org=new.org,
                        generation=generation_of(new.uuid),
                        job=new.uuid,
                        old_job=job,
                    )
                return retried

            return await in_transaction(self._write_db, create)

        return send

    async def task(self, reader: SpeechReader, job_id: str) -> StoredSpeechTask:
        """A task of the reader's. Raises JobNotFound for any other id."""
        try:
            uuid = from_text(job_id)
        except InvalidId as error:
            raise JobNotFound("there is no such task") from error
        found = await self._task(reader, generation_of(uuid))
        if found is None:
            raise JobNotFound("there is no such task")
        return found

    async def generation(self, reader: SpeechReader, generation_id: str) -> StoredSpeechTask:
        """The task of a generation. Raises GenerationNotFound for any other id."""
        try:
            uuid = from_text(generation_id)
        except InvalidId as error:
            raise GenerationNotFound("there is no such generation") from error
        found = await self._task(reader, uuid)
        if found is None or found.type is SpeechType.CLONE:
            raise GenerationNotFound("there is no such generation")
        return found

    async def _task(self, reader: SpeechReader, generation: UUID) -> StoredSpeechTask | None:
        rows = await _read_as_user(
            self._read_db,
            reader,
            "task",
            characters_max=TEXT_CHARACTERS_MAX,
            generation=generation,
        )
        return _read_task(rows[0]) if rows else None

    async def tasks(
        self,
        reader: SpeechReader,
        asked: PageQuery = FIRST_PAGE,
        *,
        states: Sequence[State] | None = None,
        types: Collection[SpeechType] = tuple(SpeechType),
    ) -> Sequence[StoredSpeechTask]:
        """A page of the reader's tasks of these types, with texts cut short. Its ids are those of
        generations."""
        rows = await _read_as_user(
            self._read_db,
            reader,
            "tasks",
            characters_max=LISTED_CHARACTERS_MAX,
            **asked.arguments(),
            states=None if states is None else [state.value for state in states],
            endpoints=[SPEECH_ENDPOINTS[each] for each in types],
            limit=asked.limit,
        )
        return [_read_task(row) for row in rows]

    async def changes(
        self, reader: SpeechReader, cursor: ChangeCursor, *, rows_max: int, limit: int
    ) -> Changes[StoredSpeechTask]:
        """Those of the reader's newest ``rows_max`` tasks that changed, with texts cut short."""
        try:
            rows = await _read_as_user(
                self._changes_db,
                reader,
                "changes",
                characters_max=LISTED_CHARACTERS_MAX,
                since=cursor.since,
                until=cursor.until,
                after=cursor.after,
                limit=limit,
                rows_max=rows_max,
            )
        except asyncpg.QueryCanceledError as error:
            raise DatabaseUnavailable("reading the changes took too long") from error
        found = [_read_task(tuple(row)[1:]) for row in rows if row["generation_id"] is not None]
        return Changes(rows[0]["seen"], [(task.spoken.uuid, task) for task in found])

    # Voices

    async def create_voice(self, reader: SpeechReader) -> tuple[UUID, str]:
        """Create a voice that is about to be uploaded; returns its id and the key for its audio.

        Call ``complete_voice`` or ``abandon_voice`` afterwards; without either, the voice is
        removed after an hour.
        """
        uuid = new_id()
        key = reference_key(reader.user, uuid)
        await sql.fetch(
            self._write_db,
            "create_voice",
            org=reader.org,
            voice=uuid,
            user=reader.user,
            blob_key=key,
        )
        return uuid, key

    async def complete_voice(
        self, reader: SpeechReader, uuid: UUID, *, size: int, sha256: bytes, seconds: float
    ) -> StoredVoice | None:
        """Mark the upload as complete; returns the voice. None if it took so long that the cleanup
        removed it."""
        row = await sql.first(
            self._write_db,
            "complete_voice",
            org=reader.org,
            voice=uuid,
            size=size,
            sha256=sha256,
            seconds=seconds,
        )
        return None if row is None else StoredVoice(*row)

    async def abandon_voice(self, reader: SpeechReader, uuid: UUID) -> None:
        """Mark a failed upload for removal."""
        await sql.fetch(self._write_db, "abandon_voice", org=reader.org, voice=uuid)

    async def voice(self, reader: SpeechReader, voice_id: str) -> StoredVoice:
        """A voice of the reader's. Raises VoiceNotFound for any other id."""
        uuid = _voice_uuid(voice_id)
        rows = await _read_as_user(self._read_db, reader, "voice", voice=uuid)
        if not rows:
            raise VoiceNotFound("there is no such voice")
        return StoredVoice(*rows[0])

    async def voices(
        self, reader: SpeechReader, *, after: UUID | None = None, limit: int = 50
    ) -> Sequence[StoredVoice]:
        """The reader's voices, newest first."""
        rows = await _read_as_user(
            self._read_db, reader, "voices", after=after or newest_possible(), limit=limit
        )
        return [StoredVoice(*row) for row in rows]

    async def delete_voice(self, reader: SpeechReader, voice_id: str) -> None:
        """Delete a voice of the reader's; its audio is deleted soon after. Raises VoiceNotFound."""
        uuid = _voice_uuid(voice_id)
        if not await sql.fetch(
            self._write_db, "delete_voice", org=reader.org, user=reader.user, voice=uuid
        ):
            raise VoiceNotFound("there is no such voice")


# For maintenance


class RemovableVoice(NamedTuple):
    """A voice whose blob and row are due for removal."""

    org: str
    uuid: UUID
    blob_key: str


async def voices_to_remove(
    db: Connection, upload_seconds_max: float, rows_max: int
) -> list[RemovableVoice]:
    """Voices whose blobs are due for removal."""
    rows = await sql.fetch(
        db, "voices_to_remove", upload_seconds_max=upload_seconds_max, limit=rows_max
    )
    return [RemovableVoice(*row) for row in rows]


async def delete_voice_rows(db: Connection, voices: Sequence[RemovableVoice]) -> None:
    """Delete the rows of voices whose blobs are deleted."""
    await sql.fetch(
        db,
        "delete_voice_rows",
        orgs=[each.org for each in voices],
        voices=[each.uuid for each in voices],
    )


async def _lock_voice(connection: RawConnection, reader: SpeechReader, voice: UUID | None) -> bool:
    """Keep the voice from being deleted until the transaction ends. False if there is none.

    True without a voice: a preview needs none.
    """
    return voice is None or bool(
        await sql.fetch(connection, "lock_voice", org=reader.org, user=reader.user, voice=voice)
    )


async def _read_as_user(
    db: Connection, reader: SpeechReader, statement: str, **arguments: Any
) -> list[asyncpg.Record]:
    """Read as the role that sees only the reader's rows.

    The statement's own parameters name the reader as well, so both the statement and row security
    restrict the rows.
    """
    user = {"org": reader.org, "user": reader.user}

    async def read(connection: RawConnection) -> list[asyncpg.Record]:
        await sql.fetch(connection, "set_user_role", **user)
        return await sql.fetch(connection, statement, **user, **arguments)

    return await in_transaction(db, read, readonly=True)


def _read_task(row: asyncpg.Record | Sequence[Any]) -> StoredSpeechTask:
    values = tuple(row)
    spoken, rest = values[:_SPOKEN_COLUMNS], values[_SPOKEN_COLUMNS:]
    audio, job = rest[:_AUDIO_COLUMNS], rest[_AUDIO_COLUMNS:]
    return StoredSpeechTask(
        job_store.read_view(job), Spoken(*spoken), None if audio[0] is None else Audio(*audio)
    )


def _voice_uuid(voice_id: str) -> UUID:
    try:
        return from_text(voice_id)
    except InvalidId as error:
        raise VoiceNotFound("there is no such voice") from error
