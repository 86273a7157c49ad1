"""How blobs are named: by deployment and job, so that a name says what it belongs to.

An organisation's name is not part of it: it may hold what a path must not.
"""

from __future__ import annotations

from uuid import UUID

from coatcheck.domain.ids import InvalidId, from_text, new_id, to_text

_ARTIFACTS = "artifacts"


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
    try:
        return from_text(parts[2])
    except InvalidId:
        return None
