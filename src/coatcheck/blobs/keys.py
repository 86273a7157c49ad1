"""How blobs are named: by deployment and job, so that a name says what it belongs to.

An organisation's name is not part of it: it may hold what a path must not.
"""

from __future__ import annotations

from uuid import UUID

from coatcheck.domain.ids import InvalidId, from_text, new_id, to_text

_ARTIFACTS = "artifacts"
_INPUTS = "inputs"


def artifacts_of(deployment: UUID) -> str:
    """What the keys of all artifacts of a deployment begin with."""
    return f"{_ARTIFACTS}/{deployment.hex}"


def artifact_key(deployment: UUID, job: UUID) -> str:
    """A fresh key. Each upload gets its own, so that two attempts never write the same blob."""
    return f"{artifacts_of(deployment)}/{to_text(job)}/{to_text(new_id())}"


def job_of(key: str) -> UUID | None:
    """The job that an artifact's blob belongs to, or None for a key of another making."""
    parts = key.split("/")
    if len(parts) != 4 or parts[0] != _ARTIFACTS:
        return None
    return _job_named(parts[2])


def inputs_of(deployment: UUID) -> str:
    """What the keys of all inputs of a deployment begin with."""
    return f"{_INPUTS}/{deployment.hex}"


def input_key(deployment: UUID, job: UUID) -> str:
    """A fresh key, for the pieces of one upload (see ``pieces.py``).

    Two uploads for the same job, such as those of two racers, never share a piece.
    """
    return f"{inputs_of(deployment)}/{to_text(job)}/{to_text(new_id())}"


def input_of_piece(blob_key: str) -> tuple[UUID, str] | None:
    """The job and the input key that a piece belongs to, or None for a key of another making."""
    parts = blob_key.split("/")
    if len(parts) != 5 or parts[0] != _INPUTS:
        return None
    job = _job_named(parts[2])
    return None if job is None else (job, "/".join(parts[:4]))


def _job_named(text: str) -> UUID | None:
    try:
        return from_text(text)
    except InvalidId:
        return None
