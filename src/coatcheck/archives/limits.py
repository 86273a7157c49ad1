"""How large an archive, and what is in it, may be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from coatcheck.domain.limits import (
    ARCHIVE_BYTES_MAX,
    ARCHIVE_ENTRIES_MAX,
    ARCHIVE_UNPACKED_MB_MAX,
)

_MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """Bounds that hold for the archive as it says it is, and again for the bytes that come out.

    ``ratio`` is how often larger than packed the whole may be, and each entry. Below
    ``ratio_free_bytes`` it is not looked at: a small file of zeros is no bomb.
    """

    archive_bytes: int = ARCHIVE_BYTES_MAX
    entries: int = ARCHIVE_ENTRIES_MAX
    unpacked_bytes: int = ARCHIVE_UNPACKED_MB_MAX * _MIB
    ratio: int = 100
    ratio_free_bytes: int = _MIB
    path_bytes: int = 255
    path_depth: int = 32

    @staticmethod
    def of(entries: int, unpacked_mb: int) -> ArchiveLimits:
        """Those of a deployment, as its settings say."""
        return ArchiveLimits(entries=entries, unpacked_bytes=unpacked_mb * _MIB)
