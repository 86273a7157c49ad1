"""Parses the extra fields of a zip entry, and refuses dangerous ones."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final

from coatcheck.archives.reasons import Reason, rejected

_HEADER: Final = struct.Struct("<HH")
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
        begin = at + _HEADER.size
        if begin > len(extra):
            raise _bad(number)
        kind, length = _HEADER.unpack_from(extra, at)
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
