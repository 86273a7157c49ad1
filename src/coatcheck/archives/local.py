"""Compares an entry's local header and data descriptor with the central directory."""

from __future__ import annotations

import struct
from typing import Final

from coatcheck.archives.directory import DESCRIPTOR_BYTES_MAX, LOCAL_HEADER_BYTES
from coatcheck.archives.entry import Entry
from coatcheck.archives.extra_fields import zip64_field
from coatcheck.archives.reasons import Reason, rejected
from coatcheck.archives.window import Window
from coatcheck.domain.errors import ArchiveRejected

_HEADER: Final = struct.Struct("<4s5H3L2H")
_SIGNATURE: Final = b"PK\x03\x04"
_MAX32: Final = 0xFFFFFFFF
_SIZES_64: Final = struct.Struct("<2Q")

_DESCRIPTOR_SIGNATURE: Final = b"PK\x07\x08"
_DESCRIPTOR: Final = struct.Struct("<3L")
_DESCRIPTOR_64: Final = struct.Struct("<L2Q")


def data_at(window: Window, entry: Entry) -> int:
    """Where the entry's data begins. Raises ArchiveRejected unless the local header has the same
    name, method, flags and sizes as the central directory, and no byte is left over."""
    head = window.read(entry.header_at, LOCAL_HEADER_BYTES)
    _, _version, flags, method, _time, _date, crc, packed, unpacked, name_length, extra_length = (
        _HEADER.unpack(head)
    )
    if not head.startswith(_SIGNATURE) or (flags, method) != (entry.flags, entry.method):
        raise _mismatch(entry)
    name = entry.name.encode()
    begins_at: int = entry.header_at + LOCAL_HEADER_BYTES + name_length + extra_length
    if name_length != len(name) or begins_at + entry.packed_bytes > entry.ends_at:
        raise _mismatch(entry)
    rest = window.read(entry.header_at + LOCAL_HEADER_BYTES, name_length + extra_length)
    if not rest.startswith(name):
        raise _mismatch(entry)
    zip64 = zip64_field(entry.number, rest[name_length:], name)
    if zip64 is not None:
        unpacked, packed = _large(entry, zip64, unpacked, packed)
    promised = (entry.crc, entry.packed_bytes, entry.unpacked_bytes)
    for here, there in zip((crc, packed, unpacked), promised, strict=True):
        # A streaming writer leaves an unknown number 0 here, and puts it into the descriptor.
        if here != there and not (entry.has_descriptor and here == 0):
            raise _mismatch(entry)
    _check_rest(window, entry, begins_at + entry.packed_bytes)
    return begins_at


def _large(entry: Entry, zip64: bytes, unpacked: int, packed: int) -> tuple[int, int]:
    """Both sizes: a local header has both or neither in its ZIP64 field.

    Python's zipfile before 3.11.4 also wrote small ones into the header.
    """
    large = _SIZES_64.unpack(zip64) if len(zip64) == _SIZES_64.size else None
    if large is None or (unpacked, packed) not in {(_MAX32, _MAX32), large}:
        raise rejected(
            Reason.ZIP64_INCONSISTENT, f"{entry} has a ZIP64 extra field that does not fit."
        )
    return large


def _check_rest(window: Window, entry: Entry, ended_at: int) -> None:
    """Check that only a data descriptor, if any, lies between the data and the next entry."""
    spare = entry.ends_at - ended_at
    if spare > (DESCRIPTOR_BYTES_MAX if entry.has_descriptor else 0):
        raise rejected(
            Reason.GAP_BETWEEN_ENTRIES,
            f"There are bytes after {entry} that belong to no entry.",
        )
    if not entry.has_descriptor:
        return
    found = window.read(ended_at, spare)
    sizes = (entry.crc, entry.packed_bytes, entry.unpacked_bytes)
    bodies = [_DESCRIPTOR_64.pack(*sizes)]
    if max(sizes) <= _MAX32:
        bodies.append(_DESCRIPTOR.pack(*sizes))
    if found not in bodies and found not in [_DESCRIPTOR_SIGNATURE + body for body in bodies]:
        raise _mismatch(entry)


def _mismatch(entry: Entry) -> ArchiveRejected:
    return rejected(
        Reason.HEADER_MISMATCH, f"{entry} is described differently in two places of the archive."
    )
