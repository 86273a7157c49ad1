"""Voices and generations. One method a file of ``sql/speech``.

What is read for a user is read as a role that is shown this user's rows only: see ``_reading_for``,
and ``schema/core/0012_row_security.sql``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

import asyncpg

from coatcheck.core.queries import jobs as job_store
from coatcheck.core.queries import org_jobs as console_store
from coatcheck.db.connection import Connection, RawConnection
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
from coatcheck.products.speech.sql import sql

LISTED_CHARACTERS_MAX: Final = 200
"""Of each text in a list."""
_SPOKEN_COLUMNS: Final = 8
_AUDIO_COLUMNS: Final = 5


class NewSpeech(NamedTuple):
    """What a job that is about to be created is to say."""

    generation: UUID
    user: str
    voice: UUID | None
    language: str
    text: str
    description: str | None = None
    clone: UUID | None = None


class OldVoice(NamedTuple):
    """A voice that is to go."""

    org: str
    uuid: UUID
    blob_key: str


async def submit(db: Connection, job: NewJob, speech: NewSpeech) -> dict[UUID, State] | None:
    """Create a job together with what it says, or neither if its key is taken. None, and neither,
    if the user has no such voice (any more).

    The state of the job, if it was created.
    """

    async def insert(connection: RawConnection) -> dict[UUID, State] | None:
        async with connection.transaction():
            if not await _held(connection, job.org, speech.user, speech.voice):
                return None
            rows = await connection.fetch(sql("submit"), *job_store.columns([job]), *speech)
        return job_store.created(rows)

    return await db.run(insert)


async def retry(
    db: Connection, old: UUID, new: NewJob, *, user: str, voice: UUID | None, generation: UUID
) -> console_store.Retried | None:
    """Create ``new``, which says again what ``old`` was to say. None if there is no such job.

    Raises VoiceNotFound if the user has no such voice (any more).
    """

    async def insert(connection: RawConnection) -> console_store.Retried | None:
        async with connection.transaction():
            if not await _held(connection, new.org, user, voice):
                raise VoiceNotFound("there is no such voice")
            arguments = console_store.retry_arguments(old, new)
            rows = await connection.fetch(sql("retry"), *arguments, generation)
        return console_store.retry_answer(rows)

    return await db.run(insert)


async def task(db: Connection, reader: SpeechReader, generation: UUID) -> StoredSpeechTask | None:
    """A task of the reader's, by what it speaks."""
    rows = await _reading_for(db, reader, "task", TEXT_CHARACTERS_MAX, generation)
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
    """The reader's tasks at these endpoints, newest first, those after the generation ``after``;
    texts are cut."""
    rows = await _reading_for(
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
    """What changed behind the cursor among the reader's newest ``rows_max`` tasks; texts are cut.
    Raises TookTooLong."""
    try:
        rows = await _reading_for(
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
    rows = await _reading_for(db, reader, "voice", uuid)
    return StoredVoice(*rows[0]) if rows else None


async def voices(
    db: Connection, reader: SpeechReader, *, after: UUID | None, limit: int
) -> list[StoredVoice]:
    """The reader's voices, newest first."""
    rows = await _reading_for(db, reader, "voices", after or newest_possible(), limit)
    return [StoredVoice(*row) for row in rows]


async def begin_voice(db: Connection, reader: SpeechReader, uuid: UUID, blob_key: str) -> None:
    """Say that a voice's audio is about to be uploaded."""
    await db.fetch(sql("begin_voice"), reader.org, uuid, reader.user, blob_key)


async def finish_voice(
    db: Connection, org: str, uuid: UUID, *, size: int, sha256: bytes, seconds: float
) -> StoredVoice | None:
    """Say that it is there in full. None if it took so long that it was given up."""
    rows = await db.fetch(sql("finish_voice"), org, uuid, size, sha256, seconds)
    return StoredVoice(*rows[0]) if rows else None


async def give_up_voice(db: Connection, org: str, uuid: UUID) -> None:
    """Say that nothing came of an upload."""
    await db.fetch(sql("give_up_voice"), org, uuid)


async def delete_voice(db: Connection, reader: SpeechReader, uuid: UUID) -> bool:
    """Delete a voice of the reader's. Whether there was one."""
    return bool(await db.fetch(sql("delete_voice"), reader.org, reader.user, uuid))


async def voices_to_remove(
    db: Connection, upload_seconds_max: float, rows_max: int
) -> list[OldVoice]:
    """Voices whose blob is to go."""
    rows = await db.fetch(sql("voices_to_remove"), upload_seconds_max, rows_max)
    return [OldVoice(*row) for row in rows]


async def forget_voices(db: Connection, voices: Sequence[OldVoice]) -> None:
    """Delete the rows of voices whose blobs are gone."""
    await db.fetch(
        sql("forget_voices"),
        [each.org for each in voices],
        [each.uuid for each in voices],
    )


async def _held(connection: RawConnection, org: str, user: str, voice: UUID | None) -> bool:
    """Whether there is such a voice until the transaction ends. What needs none has it."""
    if voice is None:
        return True
    return bool(await connection.fetch(sql("hold_voice"), org, user, voice))


async def _reading_for(
    db: Connection, reader: SpeechReader, statement: str, *arguments: Any
) -> list[asyncpg.Record]:
    """Read as the role that is shown the reader's rows only. $1 and $2 of the statement are the
    reader's: it asks for no others, and would be given none."""

    async def read(connection: RawConnection) -> list[asyncpg.Record]:
        async with connection.transaction(readonly=True):
            await connection.fetch(sql("act_for"), reader.org, reader.user)
            return await connection.fetch(sql(statement), reader.org, reader.user, *arguments)

    return await db.run(read)


def _read_task(row: asyncpg.Record | Sequence[Any]) -> StoredSpeechTask:
    values = tuple(row)
    spoken, rest = values[:_SPOKEN_COLUMNS], values[_SPOKEN_COLUMNS:]
    audio, job = rest[:_AUDIO_COLUMNS], rest[_AUDIO_COLUMNS:]
    return StoredSpeechTask(
        job_store.read_view(job), Spoken(*spoken), None if audio[0] is None else Audio(*audio)
    )
