"""A strict zip reader for archives that callers upload.

An archive has exactly one meaning or is refused: anything that two programs could read differently
is an error, and so is anything that could harm a program that unpacks it. Nothing is ever unpacked
to disk here.
"""

from coatcheck.archives.directory import TAIL_BYTES_MAX, read_directory
from coatcheck.archives.model import ArchiveLimits, Directory, Entry, Reason, Skipped
from coatcheck.archives.reader import ArchiveReader

__all__ = [
    "TAIL_BYTES_MAX",
    "ArchiveLimits",
    "ArchiveReader",
    "Directory",
    "Entry",
    "Reason",
    "Skipped",
    "read_directory",
]
