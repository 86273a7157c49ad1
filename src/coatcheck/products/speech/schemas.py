"""What the speech surface's answers look like: the words of its contract, from the engine's."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final

import msgspec

from coatcheck.domain.states import State
from coatcheck.products.speech.model import (
    DESCRIPTION_CHARACTERS_MAX,
    LANGUAGE,
    TEXT_CHARACTERS_MAX,
    SpeechType,
)


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

_Text = Annotated[
    str,
    msgspec.Meta(
        min_length=1, max_length=TEXT_CHARACTERS_MAX, extra_json_schema={"pattern": r"\S"}
    ),
]
_Language = Annotated[str, msgspec.Meta(extra_json_schema={"pattern": LANGUAGE})]


class Generate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is to be said, in which language, by which voice; and who is told of it. ``clone_id`` is
    the task that cloned the voice, if it is to be said with what came of that."""

    voice_id: str
    text: _Text
    language: _Language
    clone_id: str | None = None
    webhook_url: _Url | None = None
    state_webhook_url: _Url | None = None


class DesignPreview(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a voice is to be like, in words, and what it is to say in which language; and who is
    told of it."""

    description: Annotated[
        str,
        msgspec.Meta(
            min_length=1,
            max_length=DESCRIPTION_CHARACTERS_MAX,
            extra_json_schema={"pattern": r"\S"},
        ),
    ]
    text: _Text
    language: _Language
    webhook_url: _Url | None = None
    state_webhook_url: _Url | None = None


class Clone(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """In which language the voice's recording is spoken, and what is said in it; and who is told
    of the clone."""

    language: _Language
    transcript: Annotated[str, msgspec.Meta(max_length=TEXT_CHARACTERS_MAX)] | None = None
    webhook_url: _Url | None = None
    state_webhook_url: _Url | None = None


class StoredClone(msgspec.Struct, frozen=True):
    """What the row of a completed clone holds."""

    prompt_object_key: str
    bytes: int
    sha256: str


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
    generation: str | None
    artifacts: str


class SpeechTicket(msgspec.Struct, frozen=True):
    """A task that is safe. A clone speaks nothing, and has no ``generation_id``."""

    task_id: str
    type: SpeechType
    generation_id: str | None
    status: SpeechStatus
    terminal: bool
    urls: SpeechUrls


class SpeechMetadata(msgspec.Struct, frozen=True):
    """What was asked for. In a list ``text`` is cut after 200 characters; ``text_characters`` is
    how many there are.

    A preview has a ``description`` and no voice. The ``text`` of a clone is the transcript of its
    voice's recording."""

    generation_id: str | None
    voice_id: str | None
    clone_id: str | None
    description: str | None
    language: str
    text: str
    text_characters: int


class SpeechResult(msgspec.Struct, frozen=True):
    """What was spoken (``audio_``); or, of a clone and only there, what was made of the voice
    (``prompt_``). The URL needs no credential, and is good until then; null if the file was
    deleted. One that begins with a slash is on this server."""

    audio_object_key: str | msgspec.UnsetType = msgspec.UNSET
    audio_url: str | msgspec.UnsetType | None = msgspec.UNSET
    audio_url_expires_at: datetime | msgspec.UnsetType | None = msgspec.UNSET
    duration_seconds: float | msgspec.UnsetType = msgspec.UNSET
    prompt_object_key: str | msgspec.UnsetType = msgspec.UNSET
    prompt_url: str | msgspec.UnsetType | None = msgspec.UNSET
    prompt_url_expires_at: datetime | msgspec.UnsetType | None = msgspec.UNSET
    prompt_bytes: int | msgspec.UnsetType = msgspec.UNSET


class SpeechTask(msgspec.Struct, frozen=True):
    """A task. ``modal_job_id`` is what the remote calls it, once it was spawned there."""

    id: str
    user_id: str
    type: SpeechType
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
    generation_id: str | None
    urls: SpeechUrls


class SpeechTaskPage(msgspec.Struct, frozen=True):
    """Tasks, newest first. ``next`` is the cursor of the page after this one; null on the last."""

    items: list[SpeechTask]
    next: str | None


class Generation(msgspec.Struct, frozen=True):
    """What is, or was, to be said. The audio's fields are null until it is there. A preview of a
    voice's design has no voice."""

    id: str
    task_id: str
    type: SpeechType
    voice_id: str | None
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
