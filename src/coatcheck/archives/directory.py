"""Parses and checks a zip's central directory, which is at the end of the archive.

Everything that can be checked without the rest of the archive is checked here, so that a bad
archive is refused at upload. ``reader.py`` checks the local headers and the data.

A directory may have hundreds of thousands of entries. ``DirectoryScan`` takes it in pieces, and
keeps only numbers and names of the entries that have passed.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from coatcheck.archives.central import HEADER_BYTES_MAX, mismatch, read_header, too_large
from coatcheck.archives.end_record import EndRecord, read_end_record
from coatcheck.archives.entry import DESCRIPTOR_FLAG, Directory, Entry, Skipped
from coatcheck.archives.limits import ArchiveLimits
from coatcheck.archives.names import NameCheck, differing_in_case
from coatcheck.archives.reasons import Reason, rejected

TAIL_BYTES_MAX: Final = 4 * 1024 * 1024
"""How much of the end of an archive is kept during an upload: usually the whole directory, and
always the records that locate it."""

LOCAL_HEADER_BYTES: Final = 30
DESCRIPTOR_BYTES_MAX: Final = 24
_EXTRA_BYTES_MAX: Final = 0xFFFF


def read_end(tail: bytes, size: int, limits: ArchiveLimits) -> EndRecord:
    """Locate the central directory of an archive of ``size`` bytes that ends with ``tail``.

    ``tail`` is the whole archive or its last ``TAIL_BYTES_MAX`` bytes. Raises ArchiveRejected.
    """
    if size > limits.archive_bytes:
        raise rejected(
            Reason.ARCHIVE_TOO_LARGE,
            f"The archive has {size} bytes; {limits.archive_bytes} are allowed.",
        )
    end = read_end_record(tail, size)
    if end.entries > limits.entries:
        raise rejected(
            Reason.TOO_MANY_ENTRIES,
            f"The archive has {end.entries} entries; {limits.entries} are allowed.",
        )
    return end


def directory_in(tail: bytes, size: int, end: EndRecord) -> bytes | None:
    """The central directory, if ``tail``, the end of the archive, contains all of it."""
    base = size - len(tail)
    if end.directory_at < base:
        return None
    return tail[end.directory_at - base : end.directory_ends_at - base]


def check_directory(directory: bytes, size: int, end: EndRecord, limits: ArchiveLimits) -> None:
    """Check a whole central directory. Raises ArchiveRejected."""
    scan = DirectoryScan(size, end, limits)
    for _ in scan.feed(directory):
        pass
    scan.finish()


def read_directory(tail: bytes, size: int, limits: ArchiveLimits) -> Directory:
    """The central directory of an archive of ``size`` bytes; ``tail`` must contain all of it.

    Raises ArchiveRejected.
    """
    end = read_end(tail, size, limits)
    directory = directory_in(tail, size, end)
    if directory is None:
        raise ValueError("the tail does not hold the central directory")
    scan = DirectoryScan(size, end, limits)
    entries = list(scan.feed(directory))
    scan.finish()
    return scan.directory_of(scan.laid_out(entries))


class DirectoryScan:
    """Checks a central directory piece by piece. Its methods raise ArchiveRejected."""

    def __init__(self, size: int, end: EndRecord, limits: ArchiveLimits) -> None:
        """``size`` is the size of the whole archive."""
        self._size = size
        self._end = end
        self._limits = limits
        self._unread = b""
        self._left_bytes = end.directory_ends_at - end.directory_at
        self._names = NameCheck()
        self._has_files = False
        self._unpacked = 0
        self._starts = array("Q")
        self._needs = array("Q")
        self._spares = array("Q")
        self._ends = array("Q")

    def feed(self, piece: bytes) -> Iterator[Entry]:
        """The entries that this piece completes. Exhaust it before the next call."""
        self._left_bytes -= len(piece)
        unread = self._unread + piece
        at = 0
        # An incomplete header waits for more bytes, except at the end, where none can come.
        while len(self._starts) < self._end.entries and (
            self._left_bytes <= 0 or len(unread) - at >= HEADER_BYTES_MAX
        ):
            entry, at = read_header(len(self._starts) + 1, unread, at, self._limits)
            self._note(entry)
            yield entry
        self._unread = unread[at:]

    def _note(self, entry: Entry) -> None:
        self._names.add(entry.number, entry.name)
        self._has_files = self._has_files or not (entry.is_directory or entry.is_symlink)
        self._unpacked += entry.unpacked_bytes
        if self._unpacked > self._limits.unpacked_bytes:
            raise too_large(self._limits)
        named = len(entry.name) if entry.name.isascii() else len(entry.name.encode())
        descriptor = DESCRIPTOR_BYTES_MAX if entry.flags & DESCRIPTOR_FLAG else 0
        try:
            self._starts.append(entry.header_at)
            self._needs.append(LOCAL_HEADER_BYTES + named + entry.packed_bytes)
        except OverflowError:  # a 64-bit number plus a length
            raise _overlapping(entry.number) from None
        self._spares.append(_EXTRA_BYTES_MAX + descriptor)

    def finish(self) -> None:
        """Run the checks that need all entries. Call it after the last piece."""
        if len(self._starts) != self._end.entries:
            raise mismatch()
        if self._unread or self._left_bytes:
            raise rejected(
                Reason.DIRECTORY_MISMATCH,
                "The central directory has more than the entries it counts.",
            )
        self._names.finish()
        if not self._has_files:
            raise rejected(Reason.NO_FILES, "The archive contains no file.")
        limits = self._limits
        if self._unpacked > max(limits.ratio_free_bytes, limits.ratio * self._size):
            raise rejected(
                Reason.RATIO_TOO_HIGH,
                f"The archive is more than {limits.ratio} times larger unpacked than packed.",
            )
        self._lay_out()

    def _lay_out(self) -> None:
        """Check that each entry fits before the next one begins, with no unexplained space between.

        The directory does not say how long a local header is: the reader checks it to the byte.
        """
        starts = self._starts
        order = sorted(range(len(starts)), key=starts.__getitem__)
        if starts[order[0]] != 0:
            raise rejected(Reason.PREFIX_BYTES, "There are bytes before the first entry.")
        self._ends = array("Q", bytes(8 * len(starts)))
        for place, index in enumerate(order, 1):
            ends_at = starts[order[place]] if place < len(order) else self._end.directory_at
            spare = ends_at - starts[index] - self._needs[index]
            if spare < 0:
                raise _overlapping(index + 1)
            if spare > self._spares[index]:
                raise rejected(
                    Reason.GAP_BETWEEN_ENTRIES,
                    f"There are bytes after entry {index + 1} that belong to no entry.",
                )
            self._ends[index] = ends_at

    def laid_out(self, entries: list[Entry]) -> list[Entry]:
        """All entries in order of position, each with the position of its end."""
        for entry in entries:
            entry.ends_at = self._ends[entry.number - 1]
        entries.sort(key=lambda entry: entry.header_at)
        return entries

    def directory_of(self, entries: Sequence[Entry]) -> Directory:
        """The directory of these entries without the skipped ones."""
        left_out = differing_in_case(entry.name for entry in entries if not entry.is_symlink)
        skipped: Counter[Skipped] = Counter()
        kept = []
        for entry in entries:
            if entry.is_symlink:
                skipped["symlink"] += 1
            elif entry.name in left_out:
                skipped["name_case"] += 1
            else:
                kept.append(entry)
        counts = {str(reason): number for reason, number in skipped.items()}
        return Directory(tuple(kept), self._unpacked, counts)


def _overlapping(number: int) -> Exception:
    return rejected(
        Reason.OVERLAPPING_ENTRIES, f"Entry {number} overlaps with what comes after it."
    )
