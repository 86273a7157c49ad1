"""Parses and checks a zip's central directory, which is at the end of the archive.

Everything that can be checked without the rest of the archive is checked here, so that a bad
archive is refused at upload. ``reader.py`` checks the local headers and the data.

A directory may have hundreds of thousands of entries. ``DirectoryScan`` takes it in pieces, and
keeps only numbers and names of the entries that have passed.
"""

from __future__ import annotations

import stat
import struct
import zlib
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from coatcheck.archives.model import (
    DEFLATED,
    DESCRIPTOR_FLAG,
    ENCRYPTED_FLAGS,
    KNOWN_FLAGS,
    STORED,
    ArchiveLimits,
    Directory,
    Entry,
    Reason,
    Skipped,
    rejected,
)
from coatcheck.archives.names import NameCheck, differing_in_case, read_name
from coatcheck.domain.errors import ArchiveRejected

_EXTRA_FIELDS_HEADER: Final = struct.Struct("<HH")
_UNICODE_HEADER: Final = struct.Struct("<BL")
_ZIP64: Final = 0x0001
_STRONG_ENCRYPTION: Final = frozenset({0x0014, 0x0015, 0x0016, 0x0017, 0x0019, 0x9901})
_UNICODE_PATH: Final = 0x7075


def zip64_field(number: int, extra: bytes, raw_name: bytes) -> bytes | None:
    """The ZIP64 field, which holds large sizes, if there is one; checks the other fields.

    Raises ArchiveRejected if fields do not fill their space exactly, mark an entry as encrypted, or
    give it another name.
    """
    zip64: bytes | None = None
    for kind, data in _fields(number, extra):
        if kind == _ZIP64:
            if zip64 is not None:
                raise rejected(
                    Reason.ZIP64_INCONSISTENT, f"Entry {number} has two ZIP64 extra fields."
                )
            zip64 = data
        elif kind == _UNICODE_PATH:
            _check_unicode_path(number, data, raw_name)
        elif kind in _STRONG_ENCRYPTION:
            raise rejected(Reason.ENCRYPTED, f"Entry {number} is encrypted.")
    return zip64


def _fields(number: int, extra: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(extra):
        begin = at + _EXTRA_FIELDS_HEADER.size
        if begin > len(extra):
            raise _bad(number)
        kind, length = _EXTRA_FIELDS_HEADER.unpack_from(extra, at)
        at = begin + length
        if at > len(extra):
            raise _bad(number)
        yield kind, extra[begin:at]


def _bad(number: int) -> Exception:
    return rejected(
        Reason.BAD_EXTRA_FIELD, f"Entry {number} has an extra field that runs past its end."
    )


def _check_unicode_path(number: int, data: bytes, raw_name: bytes) -> None:
    """Refuse a second name that differs: some programs use this one, others the header's."""
    if len(data) < _UNICODE_HEADER.size:
        raise _bad(number)
    version, crc = _UNICODE_HEADER.unpack_from(data)
    if version != 1 or crc != zlib.crc32(raw_name) or data[_UNICODE_HEADER.size :] != raw_name:
        raise rejected(Reason.NAME_MISMATCH, f"Entry {number} has two names that differ.")


_END: Final = struct.Struct("<4s4H2LH")
_END_SIGNATURE: Final = b"PK\x05\x06"
_COMMENT_BYTES_MAX: Final = 0xFFFF

_LOCATOR: Final = struct.Struct("<4sLQL")
_LOCATOR_SIGNATURE: Final = b"PK\x06\x07"
_END64: Final = struct.Struct("<4sQ2H2L4Q")
_END64_SIGNATURE: Final = b"PK\x06\x06"
_END64_SIZE_FIELD: Final = _END64.size - 12
"""The record's own size field excludes the signature and itself."""

_LOCAL_SIGNATURE: Final = b"PK\x03\x04"
_CENTRAL_SIGNATURE: Final = b"PK\x01\x02"
_SPLIT_SIGNATURES: Final = (b"PK\x07\x08", b"PK00")
_MAX16: Final = 0xFFFF
_MAX32: Final = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class EndRecord:
    """Where the central directory begins and ends in the archive, and how many entries it has."""

    entries: int
    directory_at: int
    directory_ends_at: int


def read_end_record(tail: bytes, size: int) -> EndRecord:
    """The end record of an archive of ``size`` bytes that ends with ``tail``."""
    base = size - len(tail)
    at = _find(tail, base)
    _, disk, directory_disk, on_disk, entries, length, offset, _ = _END.unpack_from(tail, at)
    before = at
    if tail[max(0, at - _LOCATOR.size) : at].startswith(_LOCATOR_SIGNATURE):
        before = _zip64_at(tail, at, base)
        large = _END64.unpack_from(tail, before)
        disk = _agreed(disk, large[4], _MAX16)
        directory_disk = _agreed(directory_disk, large[5], _MAX16)
        on_disk = _agreed(on_disk, large[6], _MAX16)
        entries = _agreed(entries, large[7], _MAX16)
        length = _agreed(length, large[8], _MAX32)
        offset = _agreed(offset, large[9], _MAX32)
    if disk or directory_disk or on_disk != entries:
        raise rejected(Reason.SPLIT_ARCHIVE, "The archive is one part of several.")
    _check_position(tail, base, before, offset, length)
    return EndRecord(entries, offset, base + before)


def _find(tail: bytes, base: int) -> int:
    """The position of the one end record in ``tail``."""
    last = tail.rfind(_END_SIGNATURE)
    if last < 0 or last + _END.size > len(tail):
        raise _no_end_record(tail, base, cut=last >= 0)
    begin = max(0, len(tail) - _COMMENT_BYTES_MAX - _END.size)
    fitting = [at for at in _occurrences(tail, begin) if _end_of(tail, at) == len(tail)]
    if fitting == [last]:
        return last
    if fitting:
        # Programs that search for the last signature and programs that trust lengths would differ.
        raise rejected(Reason.SEVERAL_END_RECORDS, "The archive has more than one end record.")
    if _end_of(tail, last) > len(tail):
        raise rejected(Reason.TRUNCATED, "The archive is cut off within its comment.")
    raise rejected(Reason.TRAILING_BYTES, "There are bytes after the end of the archive.")


def _occurrences(tail: bytes, begin: int) -> list[int]:
    found: list[int] = []
    at = tail.find(_END_SIGNATURE, begin, len(tail))
    while 0 <= at <= len(tail) - _END.size:
        found.append(at)
        at = tail.find(_END_SIGNATURE, at + 1)
    return found


def _end_of(tail: bytes, at: int) -> int:
    return at + _END.size + int.from_bytes(tail[at + 20 : at + 22], "little")


def _no_end_record(tail: bytes, base: int, *, cut: bool) -> ArchiveRejected:
    if base == 0 and tail.startswith(_SPLIT_SIGNATURES):
        return rejected(Reason.SPLIT_ARCHIVE, "The archive is one part of several.")
    if cut or (base == 0 and tail.startswith(_LOCAL_SIGNATURE)) or _CENTRAL_SIGNATURE in tail:
        return rejected(Reason.TRUNCATED, "The archive is cut off: it has no end record.")
    return rejected(Reason.NOT_A_ZIP, "This is not a zip archive: it has no end record.")


def _zip64_at(tail: bytes, end_at: int, base: int) -> int:
    """The position of the ZIP64 end record, which must lie right before its locator."""
    locator_at = end_at - _LOCATOR.size
    _, disk, offset, disks = _LOCATOR.unpack_from(tail, locator_at)
    at = locator_at - _END64.size
    if disk != 0 or disks != 1:
        raise rejected(Reason.SPLIT_ARCHIVE, "The archive is one part of several.")
    if at < 0 or not tail.startswith(_END64_SIGNATURE, at):
        raise _inconsistent()
    if offset != base + at:
        # A ZIP64 archive with prepended bytes that its offsets do not count.
        if offset < base + at and _directory_before(tail, at):
            raise rejected(Reason.PREFIX_BYTES, "There are bytes before the first entry.")
        raise _inconsistent()
    if int.from_bytes(tail[at + 4 : at + 12], "little") != _END64_SIZE_FIELD:
        raise _inconsistent()
    return at


def _directory_before(tail: bytes, at: int) -> bool:
    begin = at - int.from_bytes(tail[at + 40 : at + 48], "little")
    return 0 <= begin < at and tail.startswith(_CENTRAL_SIGNATURE, begin)


def _agreed(small: int, large: int, stands_in: int) -> int:
    """The ZIP64 record's number, which must equal the small one unless that is at its maximum."""
    if small not in {large, stands_in}:
        raise _inconsistent()
    return large


def _inconsistent() -> ArchiveRejected:
    return rejected(Reason.ZIP64_INCONSISTENT, "The archive's two end records disagree.")


def _check_position(tail: bytes, base: int, before: int, offset: int, length: int) -> None:
    """Check that the central directory ends where the end records begin."""
    missing = base + before - (offset + length)
    if missing == 0:
        return
    begin = before - length
    if missing > 0 and (not length or (begin >= 0 and tail.startswith(_CENTRAL_SIGNATURE, begin))):
        raise rejected(Reason.PREFIX_BYTES, "There are bytes before the first entry.")
    raise rejected(
        Reason.DIRECTORY_MISMATCH, "The central directory is not where the end record says."
    )


_ENTRY_HEADER: Final = struct.Struct("<4s6H3L5H2L")
_SIGNATURE: Final = b"PK\x01\x02"
_VERSION_MAX: Final = 45
"""4.5: ZIP64. Later versions mean compression methods and encryption that we do not support."""

_DOS_DIRECTORY: Final = 0x10
_WINDOWS_REPARSE_POINT: Final = 0x400
_EMPTY_DEFLATED_BYTES: Final = 2


HEADER_BYTES_MAX: Final = _ENTRY_HEADER.size + 3 * _MAX16
"""The size of a header with the longest possible name, extra fields and comment."""


def read_header(number: int, directory: bytes, at: int, limits: ArchiveLimits) -> tuple[Entry, int]:
    """Parse the header at ``at`` in the central directory; returns the entry and where the header
    ends."""
    if at + _ENTRY_HEADER.size > len(directory) or not directory.startswith(_SIGNATURE, at):
        raise mismatch()
    (
        _,
        _made_by,
        version,
        flags,
        method,
        _time,
        _date,
        crc,
        packed,
        unpacked,
        name_length,
        extra_length,
        comment_length,
        disk,
        _internal,
        attributes,
        header_at,
    ) = _ENTRY_HEADER.unpack_from(directory, at)
    name_at = at + _ENTRY_HEADER.size
    extra_at = name_at + name_length
    comment_at = extra_at + extra_length
    end = comment_at + comment_length
    if end > len(directory):
        raise mismatch()
    raw_name = directory[name_at:extra_at]
    name = read_name(number, raw_name, limits)
    zip64 = zip64_field(number, directory[extra_at:comment_at], raw_name)
    unpacked, packed, header_at, disk = _large(number, zip64, unpacked, packed, header_at, disk)
    if disk:
        raise rejected(Reason.SPLIT_ARCHIVE, "The archive is one part of several.")
    entry = Entry(number, name, method, flags, crc, packed, unpacked, header_at)
    _check_features(entry, version & 0xFF)
    entry.is_symlink = _is_symlink(entry, attributes)
    _check_sizes(entry, limits)
    return entry, end


def mismatch() -> Exception:
    return rejected(
        Reason.DIRECTORY_MISMATCH, "The central directory does not hold what the end record says."
    )


def _large(
    number: int, zip64: bytes | None, unpacked: int, packed: int, header_at: int, disk: int
) -> tuple[int, int, int, int]:
    """The numbers, with those too large for the header taken from the ZIP64 field."""
    missing = [unpacked == _MAX32, packed == _MAX32, header_at == _MAX32, disk == _MAX16]
    wanted = 8 * sum(missing[:3]) + 4 * missing[3]
    if len(zip64 or b"") != wanted or (zip64 is not None and not wanted):
        raise rejected(
            Reason.ZIP64_INCONSISTENT,
            f"Entry {number} has a ZIP64 extra field that does not fit its header.",
        )
    if zip64 is None:
        return unpacked, packed, header_at, disk
    numbers = [unpacked, packed, header_at, disk]
    at = 0
    for index, width in enumerate((8, 8, 8, 4)):
        if missing[index]:
            numbers[index] = int.from_bytes(zip64[at : at + width], "little")
            at += width
    return numbers[0], numbers[1], numbers[2], numbers[3]


def _check_features(entry: Entry, version: int) -> None:
    if entry.flags & ENCRYPTED_FLAGS:
        raise rejected(Reason.ENCRYPTED, f"{entry} is encrypted.")
    if entry.method not in {STORED, DEFLATED}:
        raise rejected(
            Reason.UNKNOWN_METHOD,
            f"{entry} uses compression method {entry.method}; only 0 (stored) and 8 (deflate)"
            " are supported.",
        )
    if entry.flags & ~KNOWN_FLAGS or version > _VERSION_MAX:
        raise rejected(Reason.UNSUPPORTED_FEATURE, f"{entry} needs an unsupported zip feature.")


def _is_symlink(entry: Entry, attributes: int) -> bool:
    """Whether the entry is a symbolic link. If not, it is a file or a directory, and its name, mode
    and attributes must agree on which; otherwise the archive is refused.

    The mode counts whatever system the header claims it was made on: programs differ there.
    """
    kind = stat.S_IFMT(attributes >> 16)
    if kind == stat.S_IFLNK or attributes & _WINDOWS_REPARSE_POINT:
        return True
    if kind not in {0, stat.S_IFREG, stat.S_IFDIR}:
        raise rejected(Reason.SPECIAL_FILE, f"{entry} is neither a file nor a directory.")
    is_directory = entry.is_directory
    says_directory = kind == stat.S_IFDIR or bool(attributes & _DOS_DIRECTORY)
    if says_directory > is_directory or (is_directory and kind == stat.S_IFREG):
        raise rejected(
            Reason.KIND_MISMATCH,
            f"{entry} is a file by its name and a directory by its mode, or the other way round.",
        )
    return False


def _check_sizes(entry: Entry, limits: ArchiveLimits) -> None:
    packed, unpacked = entry.packed_bytes, entry.unpacked_bytes
    if entry.is_directory and (unpacked or packed > _EMPTY_DEFLATED_BYTES):
        raise rejected(Reason.DIRECTORY_WITH_DATA, f"{entry} is a directory that has data.")
    stored = entry.method == STORED
    if (stored and packed != unpacked) or (not stored and packed < _EMPTY_DEFLATED_BYTES):
        raise rejected(Reason.SIZE_MISMATCH, f"{entry} has impossible sizes.")
    if unpacked > limits.unpacked_bytes:
        raise too_large(limits)
    if unpacked > limits.ratio_free_bytes and unpacked > limits.ratio * packed:
        raise rejected(
            Reason.RATIO_TOO_HIGH,
            f"{entry} is more than {limits.ratio} times larger unpacked than packed.",
        )


def too_large(limits: ArchiveLimits) -> Exception:
    return rejected(
        Reason.UNPACKED_TOO_LARGE,
        f"The archive has more than {limits.unpacked_bytes} bytes unpacked.",
    )


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
