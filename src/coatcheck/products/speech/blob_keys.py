"""Blob keys of speech. They name the user: a blob lives as long as its row, whatever its job."""

from __future__ import annotations

from uuid import UUID

from coatcheck.blobs.keys import user_folder
from coatcheck.domain.ids import to_text

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
