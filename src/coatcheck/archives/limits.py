"""Size limits for archives and their contents."""

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
    """Limits that apply to the sizes that an archive declares, and again to the bytes unpacked.

    ``ratio`` is the highest compression ratio of the whole and of each entry. It does not apply
    below ``ratio_free_bytes``: a small file of zeros is not a zip bomb.
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
        """The limits from a deployment's settings."""
        return ArchiveLimits(entries=entries, unpacked_bytes=unpacked_mb * _MIB)
