"""What the server says of a file that a job made."""

from __future__ import annotations

from datetime import datetime

import msgspec


class JobArtifact(msgspec.Struct, frozen=True):
    """A file of a job. ``signed_url`` lets anybody fetch it until ``signed_url_expires_at``.

    ``expires_at`` is when it goes with its job; None while that is not known.
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
