"""An archive's entries, the limits on them, and the reasons to refuse an archive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Literal

from coatcheck.domain.errors import ArchiveRejected
from coatcheck.domain.limits import ARCHIVE_BYTES_MAX, ARCHIVE_ENTRIES_MAX, ARCHIVE_UNPACKED_MB_MAX

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


_SHOWN_CHARACTERS_MAX: Final = 100


class Reason(StrEnum):
    """The codes, for programs. The message beside it says which entry, and what to do."""

    # Not a complete zip.
    NOT_A_ZIP = "not_a_zip"
    TRUNCATED = "truncated"
    SPLIT_ARCHIVE = "split_archive"
    # Bytes that some programs would read and others would not.
    PREFIX_BYTES = "prefix_bytes"
    TRAILING_BYTES = "trailing_bytes"
    SEVERAL_END_RECORDS = "several_end_records"
    DIRECTORY_MISMATCH = "directory_mismatch"
    ZIP64_INCONSISTENT = "zip64_inconsistent"
    BAD_EXTRA_FIELD = "bad_extra_field"
    OVERLAPPING_ENTRIES = "overlapping_entries"
    GAP_BETWEEN_ENTRIES = "gap_between_entries"
    HEADER_MISMATCH = "header_mismatch"
    # Limits exceeded.
    ARCHIVE_TOO_LARGE = "archive_too_large"
    TOO_MANY_ENTRIES = "too_many_entries"
    UNPACKED_TOO_LARGE = "unpacked_too_large"
    RATIO_TOO_HIGH = "ratio_too_high"
    PATH_TOO_LONG = "path_too_long"
    PATH_TOO_DEEP = "path_too_deep"
    NO_FILES = "no_files"
    # Names.
    PATH_TRAVERSAL = "path_traversal"
    ABSOLUTE_PATH = "absolute_path"
    DRIVE_PATH = "drive_path"
    BACKSLASH = "backslash"
    CONTROL_CHARACTER = "control_character"
    EMPTY_NAME = "empty_name"
    NAME_NOT_UTF8 = "name_not_utf8"
    NAME_MISMATCH = "name_mismatch"
    DUPLICATE_NAME = "duplicate_name"
    FILE_AND_DIRECTORY = "file_and_directory"
    # Entries that are not plain files or directories.
    SPECIAL_FILE = "special_file"
    KIND_MISMATCH = "kind_mismatch"
    DIRECTORY_WITH_DATA = "directory_with_data"
    # Unsupported features.
    ENCRYPTED = "encrypted"
    UNKNOWN_METHOD = "unknown_method"
    UNSUPPORTED_FEATURE = "unsupported_feature"
    # Contents that differ from the declaration.
    SIZE_MISMATCH = "size_mismatch"
    CORRUPT_DATA = "corrupt_data"
    CHECKSUM_MISMATCH = "checksum_mismatch"


def rejected(reason: Reason, message: str) -> ArchiveRejected:
    """The error to raise."""
    return ArchiveRejected(reason.value, message)


def labelled(number: int, name: str) -> str:
    """An entry for the start of a sentence: its number, and its name if that can be displayed."""
    if name.isprintable() and len(name) < _SHOWN_CHARACTERS_MAX:
        return f"Entry {number} ({name})"
    return f"Entry {number}"


STORED: Final = 0
DEFLATED: Final = 8

ENCRYPTED_FLAGS: Final = 1 << 0 | 1 << 6 | 1 << 13
DESCRIPTOR_FLAG: Final = 1 << 3
KNOWN_FLAGS: Final = 1 << 1 | 1 << 2 | DESCRIPTOR_FLAG | 1 << 11
"""Compression level (1, 2), sizes after the data (3), and a UTF-8 name (11)."""


Skipped = Literal["symlink", "name_case"]
"""Why an entry is left out: it is a symbolic link, or its name differs from another one only in
case (or in how its letters are composed)."""


@dataclass(slots=True)
class Entry:
    """A file or directory. ``number`` counts from 1, in the order of the central directory.

    ``header_at`` is where its local header begins; ``ends_at`` is where the next entry or the
    central directory begins, so all bytes between belong to this entry. ``ends_at`` is set when all
    entries are known; ``data_at``, where its data begins, when its local header has been read.
    """

    number: int
    name: str
    method: int
    flags: int
    crc: int
    packed_bytes: int
    unpacked_bytes: int
    header_at: int
    is_symlink: bool = False
    ends_at: int = 0
    data_at: int = field(default=0, compare=False)

    @property
    def is_directory(self) -> bool:
        return self.name.endswith("/")

    @property
    def has_descriptor(self) -> bool:
        return bool(self.flags & DESCRIPTOR_FLAG)

    def __str__(self) -> str:
        return labelled(self.number, self.name)


@dataclass(frozen=True, slots=True)
class Directory:
    """The entries in the order in which they lie in the archive. ``skipped`` counts the entries
    that are left out."""

    entries: tuple[Entry, ...]
    unpacked_bytes: int
    skipped: Mapping[str, int]
