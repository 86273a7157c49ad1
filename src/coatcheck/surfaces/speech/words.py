"""What the speech surface's answers look like: the words of its contract, from the engine's."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final, Literal

import msgspec

from coatcheck.domain.speech import LANGUAGE, TEXT_CHARACTERS_MAX
from coatcheck.domain.states import State


class SpeechStatus(StrEnum):
    """Where a task stands."""

    PENDING = "pending"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


STATUSES: Final = {
    State.STAGED: SpeechStatus.PENDING,
    State.QUEUED: SpeechStatus.PENDING,
    State.DISPATCHING: SpeechStatus.PROCESSING,
    State.PROCESSING: SpeechStatus.PROCESSING,
    State.FINALIZING: SpeechStatus.PROCESSING,
    State.RETRYING: SpeechStatus.PROCESSING,
    State.CANCEL_REQUESTED: SpeechStatus.PROCESSING,
    State.COMPLETED: SpeechStatus.COMPLETED,
    State.FAILED: SpeechStatus.FAILED,
    State.CANCELLED: SpeechStatus.CANCELLED,
}

ENGINE_STATES: Final[dict[SpeechStatus, list[State]]] = {
    word: [state for state, called in STATUSES.items() if called is word] for word in SpeechStatus
}
"""The states in which a task is that is shown so."""

_Url = Annotated[str, msgspec.Meta(max_length=2_048)]


class Generate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is to be said, in which language, by which voice; and who is told of it."""

    voice_id: str
    text: Annotated[
        str,
        msgspec.Meta(
            min_length=1, max_length=TEXT_CHARACTERS_MAX, extra_json_schema={"pattern": r"\S"}
        ),
    ]
    language: Annotated[str, msgspec.Meta(extra_json_schema={"pattern": LANGUAGE})]
    webhook_url: _Url | None = None
    state_webhook_url: _Url | None = None


class StoredResult(msgspec.Struct, frozen=True):
    """What the row of a completed job holds."""

    audio_object_key: str
    duration_seconds: float
    bytes: int
    sha256: str


class SpeechUrls(msgspec.Struct, frozen=True):
    """Where the task is read, followed and cancelled, and what it speaks is found."""

    poll: str
    events: str
    cancel: str
    generation: str
    artifacts: str


class SpeechTicket(msgspec.Struct, frozen=True):
    """A task that is safe."""

    task_id: str
    generation_id: str
    status: SpeechStatus
    terminal: bool
    urls: SpeechUrls


class SpeechMetadata(msgspec.Struct, frozen=True):
    """What was asked for. In a list ``text`` is cut after 200 characters; ``text_characters`` is
    how many there are."""

    generation_id: str
    voice_id: str
    language: str
    text: str
    text_characters: int


class SpeechResult(msgspec.Struct, frozen=True):
    """What was spoken. ``audio_url`` needs no credential, and is good until then; null if the
    audio was deleted. One that begins with a slash is on this server."""

    audio_object_key: str
    audio_url: str | None
    audio_url_expires_at: datetime | None
    duration_seconds: float


class SpeechTask(msgspec.Struct, frozen=True):
    """A task. ``modal_job_id`` is what the remote calls it, once it was spawned there."""

    id: str
    type: Literal["generate"]
    status: SpeechStatus
    modal_job_id: str | None
    metadata: SpeechMetadata
    result: SpeechResult | None
    error: str | None
    error_code: str | None
    created_at: datetime
    updated_at: datetime
    completed_at: datetime | None
    expires_at: datetime | None
    cancellation_requested: bool
    terminal: bool
    generation_id: str
    urls: SpeechUrls


class SpeechTaskPage(msgspec.Struct, frozen=True):
    """Tasks, newest first. ``next`` is the cursor of the page after this one; null on the last."""

    items: list[SpeechTask]
    next: str | None


class Generation(msgspec.Struct, frozen=True):
    """What is, or was, to be said. The audio's fields are null until it is there."""

    id: str
    task_id: str
    voice_id: str
    language: str
    text: str
    text_characters: int
    status: SpeechStatus
    audio_object_key: str | None
    audio_url: str | None
    audio_url_expires_at: datetime | None
    duration_seconds: float | None
    bytes: int | None
    sha256: str | None
    error: str | None
    created_at: datetime
    completed_at: datetime | None
    expires_at: datetime | None
    terminal: bool
    urls: SpeechUrls


class GenerationPage(msgspec.Struct, frozen=True):
    """Generations, newest first. ``next`` is the cursor of the page after this one."""

    items: list[Generation]
    next: str | None


class Voice(msgspec.Struct, frozen=True):
    """A voice. ``audio_url`` is its reference audio, and needs no credential."""

    voice_id: str
    duration_seconds: float
    bytes: int
    sha256: str
    created_at: datetime
    audio_object_key: str
    audio_url: str
    audio_url_expires_at: datetime


class VoicePage(msgspec.Struct, frozen=True):
    """Voices, newest first. ``next`` is the cursor of the page after this one."""

    items: list[Voice]
    next: str | None
