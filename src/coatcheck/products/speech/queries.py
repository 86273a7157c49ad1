"""Queries of voices and generations.

Reads on behalf of a user run as a database role that sees only this user's rows: see
``_read_as_user``, and ``core/schema/0012_row_security.sql``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

import asyncpg

from coatcheck.core.queries import jobs as job_store
from coatcheck.core.queries import org_jobs as console_store
from coatcheck.db.connection import Connection, RawConnection
from coatcheck.db.queries import Queries
from coatcheck.domain.changes import ChangeCursor, Changes
from coatcheck.domain.ids import newest_possible
from coatcheck.domain.job import NewJob
from coatcheck.domain.states import State
from coatcheck.products.speech.errors import VoiceNotFound
from coatcheck.products.speech.model import (
    TEXT_CHARACTERS_MAX,
    Audio,
    SpeechReader,
    Spoken,
    StoredSpeechTask,
    StoredVoice,
)

sql: Final = Queries("coatcheck.products.speech", "queries")
LISTED_CHARACTERS_MAX: Final = 200
"""The length to which texts in lists are cut."""
_SPOKEN_COLUMNS: Final = 8
_AUDIO_COLUMNS: Final = 5


class NewSpeech(NamedTuple):
    """The generation of a job that is about to be created."""

    generation: UUID
    user: str
    voice: UUID | None
    language: str
    text: str
    description: str | None = None
    clone: UUID | None = None


class RemovableVoice(NamedTuple):
    """A voice whose blob and row are due for removal."""

    org: str
    uuid: UUID
    blob_key: str


async def submit(db: Connection, job: NewJob, speech: NewSpeech) -> dict[UUID, State] | None:
    """Create a job together with its generation, or neither if its key is taken.

    Returns the state of the job, if it was created. Returns None, and creates nothing, if the user
    has no such voice.
    """

    async def insert(connection: RawConnection) -> dict[UUID, State] | None:
        async with connection.transaction():
            if not await _lock_voice(connection, job.org, speech.user, speech.voice):
                return None
            rows = await connection.fetch(sql("submit"), *job_store.columns([job]), *speech)
        return job_store.created(rows)

    return await db.run(insert)


async def retry(
    db: Connection, old: UUID, new: NewJob, *, user: str, voice: UUID | None, generation: UUID
) -> console_store.Retried | None:
    """Create the job ``new`` with the same text as ``old``. None if there is no such job.

    Raises VoiceNotFound if the user has no such voice.
    """

    async def insert(connection: RawConnection) -> console_store.Retried | None:
        async with connection.transaction():
            if not await _lock_voice(connection, new.org, user, voice):
                raise VoiceNotFound("there is no such voice")
            arguments = console_store.retry_arguments(old, new)
            rows = await connection.fetch(sql("retry"), *arguments, generation)
        return console_store.retry_answer(rows)

    return await db.run(insert)


async def task(db: Connection, reader: SpeechReader, generation: UUID) -> StoredSpeechTask | None:
    """A task of the reader's, by its generation."""
    rows = await _read_as_user(db, reader, "task", TEXT_CHARACTERS_MAX, generation)
    return _read_task(rows[0]) if rows else None


async def tasks(
    db: Connection,
    reader: SpeechReader,
    *,
    after: UUID | None,
    states: Sequence[State] | None,
    endpoints: Collection[str],
    limit: int,
) -> list[StoredSpeechTask]:
    """The reader's tasks at these endpoints, newest first, older than the generation ``after``;
    texts are cut."""
    rows = await _read_as_user(
        db,
        reader,
        "tasks",
        LISTED_CHARACTERS_MAX,
        after or newest_possible(),
        None if states is None else [state.value for state in states],
        list(endpoints),
        limit,
    )
    return [_read_task(row) for row in rows]


async def changes(
    db: Connection, reader: SpeechReader, cursor: ChangeCursor, *, rows_max: int, limit: int
) -> Changes[StoredSpeechTask]:
    """Those of the reader's newest ``rows_max`` tasks that changed after the cursor; texts are cut.

    Raises TookTooLong.
    """
    try:
        rows = await _read_as_user(
            db,
            reader,
            "changes",
            LISTED_CHARACTERS_MAX,
            cursor.since,
            cursor.until,
            cursor.after,
            limit,
            rows_max,
        )
    except asyncpg.QueryCanceledError as error:
        raise job_store.TookTooLong from error
    found = [_read_task(tuple(row)[1:]) for row in rows if row["generation_id"] is not None]
    return Changes(rows[0]["seen"], [(task.spoken.uuid, task) for task in found])


async def voice(db: Connection, reader: SpeechReader, uuid: UUID) -> StoredVoice | None:
    """A voice of the reader's."""
    rows = await _read_as_user(db, reader, "voice", uuid)
    return StoredVoice(*rows[0]) if rows else None


async def voices(
    db: Connection, reader: SpeechReader, *, after: UUID | None, limit: int
) -> list[StoredVoice]:
    """The reader's voices, newest first."""
    rows = await _read_as_user(db, reader, "voices", after or newest_possible(), limit)
    return [StoredVoice(*row) for row in rows]


async def create_voice(db: Connection, reader: SpeechReader, uuid: UUID, blob_key: str) -> None:
    """Create the row of a voice whose audio is about to be uploaded."""
    await db.fetch(sql("create_voice"), reader.org, uuid, reader.user, blob_key)


async def complete_voice(
    db: Connection, org: str, uuid: UUID, *, size: int, sha256: bytes, seconds: float
) -> StoredVoice | None:
    """Mark an upload as complete. None if it took so long that the cleanup removed it."""
    rows = await db.fetch(sql("complete_voice"), org, uuid, size, sha256, seconds)
    return StoredVoice(*rows[0]) if rows else None


async def abandon_voice(db: Connection, org: str, uuid: UUID) -> None:
    """Mark a failed upload for removal."""
    await db.fetch(sql("abandon_voice"), org, uuid)


async def delete_voice(db: Connection, reader: SpeechReader, uuid: UUID) -> bool:
    """Delete a voice of the reader's. Returns whether there was one."""
    return bool(await db.fetch(sql("delete_voice"), reader.org, reader.user, uuid))


async def voices_to_remove(
    db: Connection, upload_seconds_max: float, rows_max: int
) -> list[RemovableVoice]:
    """Voices whose blobs are due for removal."""
    rows = await db.fetch(sql("voices_to_remove"), upload_seconds_max, rows_max)
    return [RemovableVoice(*row) for row in rows]


async def delete_voice_rows(db: Connection, voices: Sequence[RemovableVoice]) -> None:
    """Delete the rows of voices whose blobs are deleted."""
    await db.fetch(
        sql("delete_voice_rows"),
        [each.org for each in voices],
        [each.uuid for each in voices],
    )


async def _lock_voice(connection: RawConnection, org: str, user: str, voice: UUID | None) -> bool:
    """Keep the voice from being deleted until the transaction ends. False if there is none.

    True without a voice: a preview needs none.
    """
    if voice is None:
        return True
    return bool(await connection.fetch(sql("lock_voice"), org, user, voice))


async def _read_as_user(
    db: Connection, reader: SpeechReader, statement: str, *arguments: Any
) -> list[asyncpg.Record]:
    """Read as the role that sees only the reader's rows.

    $1 and $2 of the statement are the reader's as well, so both the statement and row security
    restrict the rows.
    """

    async def read(connection: RawConnection) -> list[asyncpg.Record]:
        async with connection.transaction(readonly=True):
            await connection.fetch(sql("set_user_role"), reader.org, reader.user)
            return await connection.fetch(sql(statement), reader.org, reader.user, *arguments)

    return await db.run(read)


def _read_task(row: asyncpg.Record | Sequence[Any]) -> StoredSpeechTask:
    values = tuple(row)
    spoken, rest = values[:_SPOKEN_COLUMNS], values[_SPOKEN_COLUMNS:]
    audio, job = rest[:_AUDIO_COLUMNS], rest[_AUDIO_COLUMNS:]
    return StoredSpeechTask(
        job_store.read_view(job), Spoken(*spoken), None if audio[0] is None else Audio(*audio)
    )
