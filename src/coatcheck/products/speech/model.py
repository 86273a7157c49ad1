"""The types, names and limits of speech: voices, generations and tasks; blob keys, and errors."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final
from uuid import UUID

from coatcheck.blobs.keys import user_folder
from coatcheck.domain.errors import FileRejected, NotFound
from coatcheck.domain.ids import to_text
from coatcheck.domain.job import JobView
from coatcheck.domain.patterns import whole
from coatcheck.domain.service_definition import endpoint_key, engine_name

SPEECH_SERVICE: Final = "speech"
"""The built-in service whose endpoints send texts to the remote."""


class SpeechType(StrEnum):
    """The kind of a task: speak a text with a voice, preview a voice that is only described, or
    clone a voice, which makes a prompt that speaks texts."""

    GENERATE = "generate"
    DESIGN_PREVIEW = "design_preview"
    CLONE = "clone"


SPEECH_PATHS: Final = {
    SpeechType.GENERATE: "/generate",
    SpeechType.DESIGN_PREVIEW: "/design-preview",
    SpeechType.CLONE: "/clone",
}
"""The path of each type's endpoint in the built-in service."""
SPEECH_ENDPOINTS: Final = {
    each: engine_name(SPEECH_SERVICE, 1, endpoint_key("post", path))
    for each, path in SPEECH_PATHS.items()
}
"""The ``endpoint`` of each type's jobs."""
SPEECH_TYPES: Final = {endpoint: each for each, endpoint in SPEECH_ENDPOINTS.items()}
OPERATOR_TARGET: Final = "speech"
"""The name under which the operator's remote for speech is looked up."""

TEXT_CHARACTERS_MAX: Final = 10_000
DESCRIPTION_CHARACTERS_MAX: Final = 2_000
VOICE_BYTES_MAX: Final = 50 * 1024 * 1024
VOICE_SECONDS_MIN: Final = 1.0
VOICE_SECONDS_MAX: Final = 600.0
AUDIO_BYTES_MAX: Final = 2 * 1024 * 1024 * 1024
"""The limit for audio that a remote returns."""
AUDIO_TYPE: Final = "audio/wav"
PROMPT_BYTES_MAX: Final = 256 * 1024 * 1024
"""The limit for the prompt that a remote makes of a voice."""
PROMPT_TYPE: Final = "application/octet-stream"

LANGUAGE: Final = whole("[A-Za-z]{2,3}(-[A-Za-z0-9]{1,8}){0,4}")
"""A language tag such as ``en``, ``en-gb`` or ``pt-BR``."""

_ID_TIME_BYTES: Final = 6


@dataclass(frozen=True, slots=True)
class SpeechReader:
    """The user of an organisation on whose behalf rows are read."""

    org: str
    user: str


@dataclass(frozen=True, slots=True)
class StoredVoice:
    """A user's voice: its reference audio, completely uploaded."""

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
    """A row of ``generations``: the text that a job speaks, or the voice that it clones.

    ``text`` may be cut short in a list; ``characters`` counts all of it. A preview has a
    description instead of a voice; ``clone`` is the job that made the prompt to speak with.
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
    """The file that a task produced, spoken audio or a clone's prompt, while it is stored."""

    name: str
    blob_key: str
    media_type: str
    size: int
    sha256: bytes


@dataclass(frozen=True, slots=True)
class StoredSpeechTask:
    """A task: its job, its generation, and the file that it produced."""

    view: JobView
    spoken: Spoken
    audio: Audio | None

    @property
    def type(self) -> SpeechType:
        return SPEECH_TYPES[self.view.endpoint]


def generation_of(job: UUID) -> UUID:
    """The id of a job's generation. It is derived from the job's id and has its timestamp."""
    digest = hashlib.sha256(b"generation\0" + job.bytes).digest()
    return UUID(bytes=job.bytes[:_ID_TIME_BYTES] + digest[: 16 - _ID_TIME_BYTES])


def user_of(owner: str) -> str | None:
    """The user who owns a job; None if no user does."""
    kind, _, user = owner.partition(":")
    return user if kind == "user" and user else None


# Blob keys

_GENERATIONS = "generations"
_CLONES = "clones"
_REFERENCES = "references"

OF_USERS = (_GENERATIONS, _REFERENCES)
"""The first segments of the keys of all user-owned blobs."""


def generation_key(user: str, generation: UUID) -> str:
    """The key of the audio generated for a user. It is fixed, so a repeated store replaces it."""
    return f"{_GENERATIONS}/{user_folder(user)}/{to_text(generation)}.wav"


def clone_key(user: str, clone: UUID) -> str:
    """The key of the speaker prompt made from a user's voice."""
    return f"{_CLONES}/{user_folder(user)}/{to_text(clone)}.prompt"


def reference_key(user: str, voice: UUID) -> str:
    """The key of the reference audio of a user's voice."""
    return f"{_REFERENCES}/{user_folder(user)}/{to_text(voice)}/reference.wav"


# Errors


class SpeechNotConfigured(NotFound):
    """No remote for speech is set. The message says which setting to set."""

    code = "speech_not_configured"
    public_text = None


class VoiceNotFound(NotFound):
    """This user has no such voice. Another user's id answers exactly like an absent one."""

    code = "voice_not_found"
    public_text = "There is no such voice."


class GenerationNotFound(NotFound):
    """This user has no such generation. Another user's id answers exactly like an absent one."""

    code = "generation_not_found"
    public_text = "There is no such generation."


class AudioRejected(FileRejected):
    """The reference recording cannot be used. ``details`` has the reason."""

    code = "audio_rejected"
