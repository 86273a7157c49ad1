"""Speech: what a user asks to be said, and what there is of it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from coatcheck.domain.endpoint_names import SPEECH_SERVICE, endpoint_key, engine_name
from coatcheck.domain.ids import to_text
from coatcheck.domain.job import JobView
from coatcheck.domain.patterns import whole

SPEECH_ENDPOINT: Final = engine_name(SPEECH_SERVICE, 1, endpoint_key("post", "/generate"))
"""What the ``endpoint`` of the surface's jobs holds."""
OPERATOR_TARGET: Final = "speech"
"""What the operator's remote for speech is known by, where one is looked up."""

TEXT_CHARACTERS_MAX: Final = 10_000
VOICE_BYTES_MAX: Final = 50 * 1024 * 1024
VOICE_SECONDS_MIN: Final = 1.0
VOICE_SECONDS_MAX: Final = 600.0
AUDIO_BYTES_MAX: Final = 2 * 1024 * 1024 * 1024
"""Of what a remote has spoken."""
AUDIO_TYPE: Final = "audio/wav"

LANGUAGE: Final = whole("[A-Za-z]{2,3}(-[A-Za-z0-9]{1,8}){0,4}")
"""A language as ``en``, ``en-gb`` or ``pt-BR``."""

_ID_TIME_BYTES: Final = 6


@dataclass(frozen=True, slots=True)
class Reader:
    """For whom something is read: a user of an organisation."""

    org: str
    user: str


@dataclass(frozen=True, slots=True)
class Voice:
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
    """What a job is to say. ``text`` may be cut short in a list; ``characters`` counts it all."""

    uuid: UUID
    voice: UUID
    language: str
    text: str
    characters: int
    created_at: datetime

    @property
    def id(self) -> str:
        return to_text(self.uuid)


@dataclass(frozen=True, slots=True)
class Audio:
    """The file that was spoken, while it is there."""

    name: str
    blob_key: str
    media_type: str
    size: int
    sha256: bytes


@dataclass(frozen=True, slots=True)
class SpeechTask:
    """A job of the surface, what it is to say, and what came of it."""

    view: JobView
    spoken: Spoken
    audio: Audio | None


def generation_of(job: UUID) -> UUID:
    """The id of what a job speaks: of the same moment, and the same whenever it is asked for."""
    digest = hashlib.sha256(b"generation\0" + job.bytes).digest()
    return UUID(bytes=job.bytes[:_ID_TIME_BYTES] + digest[: 16 - _ID_TIME_BYTES])


def user_of(owner: str) -> str | None:
    """The user who owns a job; None if it is not a user's."""
    kind, _, user = owner.partition(":")
    return user if kind == "user" and user else None
