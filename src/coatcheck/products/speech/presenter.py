"""Renders tasks, generations and voices as bodies of the speech HTTP API."""

from __future__ import annotations

from datetime import datetime
from typing import Final
from uuid import UUID

import msgspec

from coatcheck.core import Engine
from coatcheck.domain.ids import to_text
from coatcheck.domain.job import JobView
from coatcheck.domain.states import WAITING, State
from coatcheck.http.artifacts import SIGNED_SECONDS, signed_seconds
from coatcheck.http.watching import JobLinks
from coatcheck.products.speech import schemas
from coatcheck.products.speech.model import (
    AUDIO_TYPE,
    SpeechType,
    StoredSpeechTask,
    StoredVoice,
    user_of,
)

TASKS: Final = "/tasks"
GENERATIONS: Final = "/generations"

_decode_clone: Final = msgspec.json.Decoder(schemas.StoredClone).decode
_decode_result: Final = msgspec.json.Decoder(schemas.StoredResult).decode


def task_urls(job_id: str) -> JobLinks:
    return JobLinks.at(f"{TASKS}/{job_id}")


async def shown_task(engine: Engine, task: StoredSpeechTask) -> schemas.SpeechTask:
    view, spoken = task.view, task.spoken
    generation = None if task.type is SpeechType.CLONE else spoken.id
    return schemas.SpeechTask(
        id=view.id,
        user_id=user_of(view.owner) or "",
        type=task.type,
        status=schemas.STATUSES[view.state],
        modal_job_id=view.execution_id,
        metadata=schemas.SpeechMetadata(
            generation_id=generation,
            voice_id=_id(spoken.voice),
            clone_id=_id(spoken.clone),
            description=spoken.description,
            language=spoken.language,
            text=spoken.text,
            text_characters=spoken.characters,
        ),
        result=await _result(engine, task),
        error=_error(view),
        error_code=view.error_code if view.state in {State.FAILED, *WAITING} else None,
        created_at=view.created_at,
        updated_at=view.updated_at,
        completed_at=view.finished_at,
        expires_at=view.expires_at,
        cancellation_requested=view.state in (State.CANCEL_REQUESTED, State.CANCELLED),
        terminal=view.terminal,
        generation_id=generation,
        urls=shown_urls(task_urls(view.id), generation),
    )


async def shown_generation(engine: Engine, task: StoredSpeechTask) -> schemas.Generation:
    view, spoken, audio = task.view, task.spoken, task.audio
    stored = _stored(view)
    url, url_expires_at = await _signed(engine, task)
    return schemas.Generation(
        id=spoken.id,
        task_id=view.id,
        type=task.type,
        voice_id=_id(spoken.voice),
        language=spoken.language,
        text=spoken.text,
        text_characters=spoken.characters,
        status=schemas.STATUSES[view.state],
        audio_object_key=None if audio is None else audio.blob_key,
        audio_url=url,
        audio_url_expires_at=url_expires_at,
        duration_seconds=None if stored is None else stored.duration_seconds,
        bytes=None if audio is None else audio.size,
        sha256=None if audio is None else audio.sha256.hex(),
        error=_error(view),
        created_at=spoken.created_at,
        completed_at=view.finished_at,
        expires_at=view.expires_at,
        terminal=view.terminal,
        urls=shown_urls(task_urls(view.id), spoken.id),
    )


async def shown_voice(engine: Engine, voice: StoredVoice) -> schemas.Voice:
    signed = await engine.signer.signed_get(
        voice.blob_key, SIGNED_SECONDS, file_name=f"{voice.id}.wav", media_type=AUDIO_TYPE
    )
    return schemas.Voice(
        voice_id=voice.id,
        duration_seconds=voice.duration_seconds,
        bytes=voice.size,
        sha256=voice.sha256.hex(),
        created_at=voice.created_at,
        audio_object_key=voice.blob_key,
        audio_url=signed.url,
        audio_url_expires_at=signed.expires_at,
    )


def shown_urls(urls: JobLinks, generation: str | None) -> schemas.SpeechUrls:
    return schemas.SpeechUrls(
        poll=urls.poll,
        events=urls.events,
        cancel=urls.cancel,
        generation=None if generation is None else f"{GENERATIONS}/{generation}",
        artifacts=urls.artifacts,
    )


def _id(uuid: UUID | None) -> str | None:
    return None if uuid is None else to_text(uuid)


async def _result(engine: Engine, task: StoredSpeechTask) -> schemas.SpeechResult | None:
    """The result of a completed task."""
    view = task.view
    if view.state is not State.COMPLETED or view.result is None:
        return None
    url, expires_at = await _signed(engine, task)
    if task.type is SpeechType.CLONE:
        clone = _decode_clone(view.result)
        return schemas.SpeechResult(
            prompt_object_key=clone.prompt_object_key,
            prompt_url=url,
            prompt_url_expires_at=expires_at,
            prompt_bytes=clone.bytes,
        )
    spoken = _decode_result(view.result)
    return schemas.SpeechResult(
        audio_object_key=spoken.audio_object_key,
        audio_url=url,
        audio_url_expires_at=expires_at,
        duration_seconds=spoken.duration_seconds,
    )


def _stored(view: JobView) -> schemas.StoredResult | None:
    if view.state is not State.COMPLETED or view.result is None:
        return None
    return _decode_result(view.result)


async def _signed(
    engine: Engine, task: StoredSpeechTask
) -> tuple[str, datetime] | tuple[None, None]:
    """The signed URL of the task's file, and when it expires; None twice if there is no file."""
    audio = task.audio
    if audio is None:
        return None, None
    signed = await engine.signer.signed_get(
        audio.blob_key,
        signed_seconds(task.view.expires_at),
        file_name=audio.name,
        media_type=audio.media_type,
    )
    return signed.url, signed.expires_at


def _error(view: JobView) -> str | None:
    """Why the task failed; or why the last attempt failed, while the task waits for a retry."""
    if view.state is State.FAILED:
        return view.error_message or view.error_code or "The task failed."
    return view.error_message if view.state in WAITING else None
