"""Speech: what a user asks to be said, and what there is of it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final
from uuid import UUID

from coatcheck.domain.ids import to_text
from coatcheck.domain.job import JobView
from coatcheck.domain.patterns import whole
from coatcheck.domain.service_definition import endpoint_key, engine_name

SPEECH_SERVICE: Final = "speech"
"""The service that has a remote speak texts."""


class SpeechType(StrEnum):
    """What a task does: speak a text with a voice, speak one with a voice that is only described,
    or make of a voice what texts are spoken with."""

    GENERATE = "generate"
    DESIGN_PREVIEW = "design_preview"
    CLONE = "clone"


SPEECH_PATHS: Final = {
    SpeechType.GENERATE: "/generate",
    SpeechType.DESIGN_PREVIEW: "/design-preview",
    SpeechType.CLONE: "/clone",
}
"""What workers call the work of each type."""
SPEECH_ENDPOINTS: Final = {
    each: engine_name(SPEECH_SERVICE, 1, endpoint_key("post", path))
    for each, path in SPEECH_PATHS.items()
}
"""What the ``endpoint`` of the surface's jobs holds."""
SPEECH_TYPES: Final = {endpoint: each for each, endpoint in SPEECH_ENDPOINTS.items()}
OPERATOR_TARGET: Final = "speech"
"""What the operator's remote for speech is known by, where one is looked up."""

TEXT_CHARACTERS_MAX: Final = 10_000
DESCRIPTION_CHARACTERS_MAX: Final = 2_000
VOICE_BYTES_MAX: Final = 50 * 1024 * 1024
VOICE_SECONDS_MIN: Final = 1.0
VOICE_SECONDS_MAX: Final = 600.0
AUDIO_BYTES_MAX: Final = 2 * 1024 * 1024 * 1024
"""Of what a remote has spoken."""
AUDIO_TYPE: Final = "audio/wav"
PROMPT_BYTES_MAX: Final = 256 * 1024 * 1024
"""Of what a remote has made of a voice."""
PROMPT_TYPE: Final = "application/octet-stream"

LANGUAGE: Final = whole("[A-Za-z]{2,3}(-[A-Za-z0-9]{1,8}){0,4}")
"""A language as ``en``, ``en-gb`` or ``pt-BR``."""

_ID_TIME_BYTES: Final = 6


@dataclass(frozen=True, slots=True)
class SpeechReader:
    """For whom something is read: a user of an organisation."""

    org: str
    user: str


@dataclass(frozen=True, slots=True)
class StoredVoice:
    """Reference audio of a user's, whole."""

    uuid: UUID
    blob_key: str
    created_at: datetime
    size: int
    sha256: bytes
    duration_seconds: float

    @property
    def id(self) -> str:
        return to_text(self.uuid)


@dataclass(frozen=True, slots=True)
class Spoken:
    """What a job is to say, or of which voice it is a clone. ``text`` may be cut short in a list;
    ``characters`` counts it all.

    A preview has no voice, but a description; ``clone`` is the job that made what it is said with.
    """

    uuid: UUID
    voice: UUID | None
    language: str
    text: str
    characters: int
    created_at: datetime
    description: str | None = None
    clone: UUID | None = None

    @property
    def id(self) -> str:
        return to_text(self.uuid)


@dataclass(frozen=True, slots=True)
class Audio:
    """The file that was spoken, or that a clone is, while it is there."""

    name: str
    blob_key: str
    media_type: str
    size: int
    sha256: bytes


@dataclass(frozen=True, slots=True)
class StoredSpeechTask:
    """A job of the surface, what it is to say, and what came of it."""

    view: JobView
    spoken: Spoken
    audio: Audio | None

    @property
    def type(self) -> SpeechType:
        return SPEECH_TYPES[self.view.endpoint]


def generation_of(job: UUID) -> UUID:
    """The id of what a job speaks: of the same moment, and the same whenever it is asked for."""
    digest = hashlib.sha256(b"generation\0" + job.bytes).digest()
    return UUID(bytes=job.bytes[:_ID_TIME_BYTES] + digest[: 16 - _ID_TIME_BYTES])


def user_of(owner: str) -> str | None:
    """The user who owns a job; None if it is not a user's."""
    kind, _, user = owner.partition(":")
    return user if kind == "user" and user else None
