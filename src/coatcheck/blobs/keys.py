"""Blob keys: they name the deployment and the owner, so a key says what it belongs to.

Organisation names are not part of a key: they may contain what a path must not. Products have keys
of their own beside these (``products/*/blob_keys.py``).
"""

from __future__ import annotations

import hashlib
from urllib.parse import quote
from uuid import UUID

from coatcheck.domain.ids import InvalidId, from_text, new_id, to_text

_ARTIFACTS = "artifacts"
_INPUTS = "inputs"
_UPLOADS = "uploads"
_FOLDER_NAME_BYTES_MAX = 200


def artifacts_of(deployment: UUID) -> str:
    """The key prefix of a deployment's artifacts."""
    return f"{_ARTIFACTS}/{deployment.hex}"


def artifact_key(deployment: UUID, job: UUID) -> str:
    """A new key. Each upload gets its own, so two attempts never write the same blob."""
    return f"{artifacts_of(deployment)}/{to_text(job)}/{to_text(new_id())}"


def job_of(key: str) -> UUID | None:
    """The job that an artifact's blob belongs to, or None if the key has another form."""
    return owner_of(key, _ARTIFACTS, 4)


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
    job = owner_of(blob_key, _INPUTS, 5)
    return None if job is None else (job, blob_key.rpartition("/")[0])


def uploads_of(deployment: UUID) -> str:
    """The key prefix of a deployment's uploads."""
    return f"{_UPLOADS}/{deployment.hex}"


def upload_key(deployment: UUID, upload: UUID) -> str:
    """The key of a file that a caller uploads before submitting it. A second PUT replaces it."""
    return f"{uploads_of(deployment)}/{to_text(upload)}"


def upload_of(key: str) -> UUID | None:
    """The upload that a blob belongs to, or None if the key has another form."""
    return owner_of(key, _UPLOADS, 3)


def user_folder(user: str) -> str:
    """A user's id as a unique folder name. Characters that a name cannot hold are
    percent-encoded; a name that would be too long becomes a hash."""
    name = quote(user, safe="@+=,").replace("~", "%7E")
    if not name.strip("."):
        name = name.replace(".", "%2E")
    if len(name) > _FOLDER_NAME_BYTES_MAX:
        name = "~" + hashlib.sha256(user.encode()).hexdigest()
    return name


def owner_of(key: str, kind: str, segments: int, at: int = 2) -> UUID | None:
    """The id in segment ``at`` of a key, or None if the key is of another kind or form."""
    parts = key.split("/")
    if len(parts) != segments or parts[0] != kind:
        return None
    try:
        return from_text(parts[at])
    except InvalidId:
        return None
