"""Files that callers stage before they submit what reads them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID


@dataclass(frozen=True, slots=True)
class StagedUpload:
    """A place for a file. ``is_expired`` is by the database's clock; ``used_by`` has taken it."""

    org: str
    uuid: UUID
    owner: str
    blob_key: str
    created_at: datetime
    expires_at: datetime
    is_expired: bool
    used_by: UUID | None

    @property
    def is_used(self) -> bool:
        """Whether its list is somebody's input by now, and not to be changed."""
        return self.used_by is not None
