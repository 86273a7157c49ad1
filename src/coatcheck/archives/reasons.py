"""Reason codes for refused archives: one short, stable word each."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from coatcheck.domain.errors import ArchiveRejected

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
