"""Blob keys: they name the deployment and the owner, so a key says what it belongs to.

Organisation names are not part of a key: they may contain what a path must not. Data that belongs
to a user and lives as long as its row has the user in its key, encoded for use in a path.
"""

from __future__ import annotations

import hashlib
from urllib.parse import quote
from uuid import UUID

from coatcheck.domain.ids import InvalidId, from_text, new_id, to_text

_ARTIFACTS = "artifacts"
_INPUTS = "inputs"
_UPLOADS = "uploads"
_LISTS = "lists"
_EXPORTS = "exports"
_GENERATIONS = "generations"
_CLONES = "clones"
_REFERENCES = "references"
_FOLDER_NAME_BYTES_MAX = 200

OF_USERS = (_GENERATIONS, _REFERENCES)
"""The first segments of the keys of all user-owned blobs."""


def artifacts_of(deployment: UUID) -> str:
    """The key prefix of a deployment's artifacts."""
    return f"{_ARTIFACTS}/{deployment.hex}"


def artifact_key(deployment: UUID, job: UUID) -> str:
    """A new key. Each upload gets its own, so two attempts never write the same blob."""
    return f"{artifacts_of(deployment)}/{to_text(job)}/{to_text(new_id())}"


def job_of(key: str) -> UUID | None:
    """The job that an artifact's blob belongs to, or None if the key has another form."""
    parts = key.split("/")
    if len(parts) != 4 or parts[0] != _ARTIFACTS:
        return None
    return _id_named(parts[2])


def inputs_of(deployment: UUID) -> str:
    """The key prefix of a deployment's inputs."""
    return f"{_INPUTS}/{deployment.hex}"


def input_key(deployment: UUID, job: UUID) -> str:
    """A new key for the pieces of one upload (see ``pieces.py``).

    Two concurrent uploads for the same job never share a piece.
    """
    return f"{inputs_of(deployment)}/{to_text(job)}/{to_text(new_id())}"


def input_of_piece(blob_key: str) -> tuple[UUID, str] | None:
    """The job and the input key that a piece belongs to, or None if the key has another form."""
    parts = blob_key.split("/")
    if len(parts) != 5 or parts[0] != _INPUTS:
        return None
    job = _id_named(parts[2])
    return None if job is None else (job, "/".join(parts[:4]))


def uploads_of(deployment: UUID) -> str:
    """The key prefix of a deployment's staged task lists."""
    return f"{_UPLOADS}/{deployment.hex}"


def upload_key(deployment: UUID, upload: UUID) -> str:
    """The key of a list that a caller uploads before submitting a batch. A second PUT replaces
    it."""
    return f"{uploads_of(deployment)}/{to_text(upload)}"


def upload_of(key: str) -> UUID | None:
    """The upload that a blob belongs to, or None if the key has another form."""
    parts = key.split("/")
    if len(parts) != 3 or parts[0] != _UPLOADS:
        return None
    return _id_named(parts[2])


def lists_of(deployment: UUID) -> str:
    """The key prefix of task lists that came in a request body."""
    return f"{_LISTS}/{deployment.hex}"


def list_key(deployment: UUID, batch: UUID, part: UUID) -> str:
    """A new key for the pieces of one list (see ``pieces.py``)."""
    return f"{lists_of(deployment)}/{to_text(batch)}/{to_text(part)}/{to_text(new_id())}"


def list_of_piece(blob_key: str) -> tuple[UUID, str] | None:
    """The part of a batch and the list key that a piece belongs to, or None."""
    parts = blob_key.split("/")
    if len(parts) != 6 or parts[0] != _LISTS:
        return None
    part = _id_named(parts[3])
    return None if part is None else (part, "/".join(parts[:5]))


def exports_of(deployment: UUID) -> str:
    """The key prefix of a deployment's exports."""
    return f"{_EXPORTS}/{deployment.hex}"


def export_key(deployment: UUID, batch: UUID, export: UUID) -> str:
    """A new key. Each attempt gets its own, so two attempts never write the same blob."""
    return f"{exports_of(deployment)}/{to_text(batch)}/{to_text(export)}/{to_text(new_id())}"


def export_of(key: str) -> UUID | None:
    """The export that a blob belongs to, or None if the key has another form."""
    parts = key.split("/")
    if len(parts) != 5 or parts[0] != _EXPORTS:
        return None
    return _id_named(parts[3])


def generation_key(user: str, generation: UUID) -> str:
    """The key of the audio generated for a user. It is fixed, so a repeated store replaces it."""
    return f"{_GENERATIONS}/{_folder_of(user)}/{to_text(generation)}.wav"


def clone_key(user: str, clone: UUID) -> str:
    """The key of the speaker prompt made from a user's voice."""
    return f"{_CLONES}/{_folder_of(user)}/{to_text(clone)}.prompt"


def reference_key(user: str, voice: UUID) -> str:
    """The key of the reference audio of a user's voice."""
    return f"{_REFERENCES}/{_folder_of(user)}/{to_text(voice)}/reference.wav"


def _folder_of(user: str) -> str:
    """A user's id as a unique folder name. Characters that a name cannot hold are
    percent-encoded; a name that would be too long becomes a hash."""
    name = quote(user, safe="@+=,").replace("~", "%7E")
    if not name.strip("."):
        name = name.replace(".", "%2E")
    if len(name) > _FOLDER_NAME_BYTES_MAX:
        name = "~" + hashlib.sha256(user.encode()).hexdigest()
    return name


def _id_named(text: str) -> UUID | None:
    try:
        return from_text(text)
    except InvalidId:
        return None
