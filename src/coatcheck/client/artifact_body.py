"""Data types for files that a job produced."""

from __future__ import annotations

from datetime import datetime

import msgspec


class JobArtifact(msgspec.Struct, frozen=True):
    """A file of a job. Anyone can fetch ``signed_url`` until ``signed_url_expires_at``.

    ``expires_at`` is when it is deleted with its job; None while that is unknown.
    """

    name: str
    media_type: str
    bytes: int
    sha256: str
    created_at: datetime
    expires_at: datetime | None
    url: str
    signed_url: str
    signed_url_expires_at: datetime


class JobArtifacts(msgspec.Struct, frozen=True):
    """The files of a job."""

    items: list[JobArtifact]
