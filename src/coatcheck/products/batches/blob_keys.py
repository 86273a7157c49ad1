"""Blob keys of batches: task lists that came in a request body, and exports."""

from __future__ import annotations

from uuid import UUID

from coatcheck.blobs.keys import id_of
from coatcheck.domain.ids import new_id, to_text

_LISTS = "lists"
_EXPORTS = "exports"


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
    part = id_of(parts[3])
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
    return id_of(parts[3])
