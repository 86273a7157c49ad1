"""Archives that callers hand in, read strictly.

One reading of an archive, or none: whatever two programs could read differently is refused, and so
is whatever could hurt one that unpacks it. Nothing is ever unpacked to disk here.
"""

from coatcheck.archives.directory import TAIL_BYTES_MAX, read_directory
from coatcheck.archives.entry import Directory, Entry, Skipped
from coatcheck.archives.limits import ArchiveLimits
from coatcheck.archives.reader import ArchiveReader
from coatcheck.archives.reasons import Reason

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
