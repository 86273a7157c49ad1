"""Parses one header of a zip's central directory."""

from __future__ import annotations

import stat
import struct
from typing import Final

from coatcheck.archives.entry import (
    DEFLATED,
    ENCRYPTED_FLAGS,
    KNOWN_FLAGS,
    STORED,
    Entry,
)
from coatcheck.archives.extra_fields import zip64_field
from coatcheck.archives.limits import ArchiveLimits
from coatcheck.archives.names import read_name
from coatcheck.archives.reasons import Reason, rejected

_HEADER: Final = struct.Struct("<4s6H3L5H2L")
_SIGNATURE: Final = b"PK\x01\x02"
_VERSION_MAX: Final = 45
"""4.5: ZIP64. Later versions mean compression methods and encryption that we do not support."""

_MAX16: Final = 0xFFFF
_MAX32: Final = 0xFFFFFFFF
_DOS_DIRECTORY: Final = 0x10
_WINDOWS_REPARSE_POINT: Final = 0x400
_EMPTY_DEFLATED_BYTES: Final = 2


HEADER_BYTES_MAX: Final = _HEADER.size + 3 * _MAX16
"""The size of a header with the longest possible name, extra fields and comment."""


def read_header(number: int, directory: bytes, at: int, limits: ArchiveLimits) -> tuple[Entry, int]:
    """Parse the header at ``at`` in the central directory; returns the entry and where the header
    ends."""
    if at + _HEADER.size > len(directory) or not directory.startswith(_SIGNATURE, at):
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
    ) = _HEADER.unpack_from(directory, at)
    name_at = at + _HEADER.size
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
