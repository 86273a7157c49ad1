"""The bodies of the speech HTTP API, and its statuses for the engine's states."""

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
    """The status of a task."""

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
    status: [state for state, shown in STATUSES.items() if shown is status]
    for status in SpeechStatus
}
"""The engine's states behind each status."""

_Url = Annotated[str, msgspec.Meta(max_length=2_048)]

_Text = Annotated[
    str,
    msgspec.Meta(
        min_length=1, max_length=TEXT_CHARACTERS_MAX, extra_json_schema={"pattern": r"\S"}
    ),
]
_Language = Annotated[str, msgspec.Meta(extra_json_schema={"pattern": LANGUAGE})]


class Generate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A text to speak, its language and voice, and webhook URLs. ``clone_id`` is the task that
    cloned the voice, to speak the text with that clone."""

    voice_id: str
    text: _Text
    language: _Language
    clone_id: str | None = None
    webhook_url: _Url | None = None
    state_webhook_url: _Url | None = None


class DesignPreview(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The description of a voice, a text that it speaks with its language, and webhook URLs."""

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
    """The language and the transcript of the voice's recording, and webhook URLs."""

    language: _Language
    transcript: Annotated[str, msgspec.Meta(max_length=TEXT_CHARACTERS_MAX)] | None = None
    webhook_url: _Url | None = None
    state_webhook_url: _Url | None = None


class StoredClone(msgspec.Struct, frozen=True):
    """The result in the row of a completed clone's job."""

    prompt_object_key: str
    bytes: int
    sha256: str


class StoredResult(msgspec.Struct, frozen=True):
    """The result in the row of a completed generation's job."""

    audio_object_key: str
    duration_seconds: float
    bytes: int
    sha256: str


class SpeechUrls(msgspec.Struct, frozen=True):
    """The URLs to read, follow and cancel the task, and of its generation and artifacts."""

    poll: str
    events: str
    cancel: str
    generation: str | None
    artifacts: str


class SpeechTicket(msgspec.Struct, frozen=True):
    """A submitted task. A clone speaks nothing, so it has no ``generation_id``."""

    task_id: str
    type: SpeechType
    generation_id: str | None
    status: SpeechStatus
    terminal: bool
    urls: SpeechUrls


class SpeechMetadata(msgspec.Struct, frozen=True):
    """The input of a task. In a list, ``text`` is cut after 200 characters; ``text_characters`` is
    its full length.

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
    """The spoken audio (``audio_``); or, for a clone only, the prompt made of the voice
    (``prompt_``). The URL needs no credential until it expires; it is null if the file was
    deleted. A URL that begins with a slash is on this server."""

    audio_object_key: str | msgspec.UnsetType = msgspec.UNSET
    audio_url: str | msgspec.UnsetType | None = msgspec.UNSET
    audio_url_expires_at: datetime | msgspec.UnsetType | None = msgspec.UNSET
    duration_seconds: float | msgspec.UnsetType = msgspec.UNSET
    prompt_object_key: str | msgspec.UnsetType = msgspec.UNSET
    prompt_url: str | msgspec.UnsetType | None = msgspec.UNSET
    prompt_url_expires_at: datetime | msgspec.UnsetType | None = msgspec.UNSET
    prompt_bytes: int | msgspec.UnsetType = msgspec.UNSET


class SpeechTask(msgspec.Struct, frozen=True):
    """A task. ``modal_job_id`` is the remote's id of it, once the remote has started it."""

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
    """Tasks, newest first. ``next`` is the cursor of the next page; null on the last page."""

    items: list[SpeechTask]
    next: str | None


class Generation(msgspec.Struct, frozen=True):
    """A text to speak, and its audio. The audio's fields are null until it exists. A preview of a
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
    """Generations, newest first. ``next`` is the cursor of the next page."""

    items: list[Generation]
    next: str | None


class Voice(msgspec.Struct, frozen=True):
    """A voice. ``audio_url`` is the URL of its reference audio, and needs no credential."""

    voice_id: str
    duration_seconds: float
    bytes: int
    sha256: str
    created_at: datetime
    audio_object_key: str
    audio_url: str
    audio_url_expires_at: datetime


class VoicePage(msgspec.Struct, frozen=True):
    """Voices, newest first. ``next`` is the cursor of the next page."""

    items: list[Voice]
    next: str | None
