"""Conversion of ids between the API's and the database's spelling."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from coatcheck.domain.ids import InvalidId, from_text, to_text


def uuid_of(job: str) -> UUID | None:
    """The id in an API's spelling; None if it is not valid."""
    try:
        return from_text(job)
    except InvalidId:
        pass
    try:
        return UUID(job)
    except ValueError:
        return None


def uuids_of(jobs: Iterable[str]) -> dict[UUID, str]:
    """Ids by their stored form."""
    return {found: job for job in jobs if (found := uuid_of(job)) is not None}


def spelt(job: UUID) -> str:
    return to_text(job)
