"""Finds a zip's end record, which locates the central directory and counts its entries.

A zip is read from its end. The end record comes last, followed only by a comment whose length it
gives. A ZIP64 end record, with room for larger numbers, and its locator may precede it. Everything
must lie exactly where it should, with nothing between or after.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from coatcheck.archives.reasons import Reason, rejected
from coatcheck.domain.errors import ArchiveRejected

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
    _check_place(tail, base, before, offset, length)
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


def _check_place(tail: bytes, base: int, before: int, offset: int, length: int) -> None:
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
