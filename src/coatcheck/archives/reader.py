"""Reads files from a zip archive in place, and checks every byte.

Unpacked bytes are counted against the declared size, so that zip bombs and wrong sizes are noticed
at once, and each file's checksum is verified. Nothing is written to disk.
"""

from __future__ import annotations

import os
import stat
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from coatcheck.archives.directory import (
    DESCRIPTOR_BYTES_MAX,
    LOCAL_HEADER_BYTES,
    TAIL_BYTES_MAX,
    DirectoryScan,
    read_end,
    zip64_field,
)
from coatcheck.archives.model import STORED, ArchiveLimits, Directory, Entry, Reason, rejected
from coatcheck.domain.errors import ArchiveRejected


class Window:
    """A regular file opened for reading. It has no position of its own, so threads and forked
    processes can read from it concurrently."""

    def __init__(self, source: Path | int) -> None:
        """``source`` is a path (a symbolic link as its last part is refused) or a descriptor, which
        the caller keeps."""
        self._owned = not isinstance(source, int)
        if isinstance(source, int):
            self.descriptor = source
        else:
            self.descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        about = os.fstat(self.descriptor)
        if not stat.S_ISREG(about.st_mode):
            self.close()
            raise ValueError("an archive is read from a regular file")
        self.size = about.st_size

    def read(self, at: int, length: int) -> bytes:
        """Exactly ``length`` bytes at ``at``. Raises ArchiveRejected if the file is shorter."""
        data = os.pread(self.descriptor, length, at)
        while len(data) < length:
            more = os.pread(self.descriptor, length - len(data), at + len(data))
            if not more:
                raise rejected(Reason.TRUNCATED, "The archive ends before its entries do.")
            data += more
        return data

    def close(self) -> None:
        if self._owned:
            os.close(self.descriptor)
            self._owned = False


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


_PIECE_BYTES: Final = 64 * 1024
_SCANNED_BYTES: Final = 1024 * 1024


class ArchiveReader:
    """An open archive whose headers have all been checked.

    Threads and processes forked later may read from one reader concurrently. A context manager.
    """

    def __init__(self, source: Path | int, limits: ArchiveLimits | None = None) -> None:
        """Raises ArchiveRejected; OSError if the file cannot be opened or is a symbolic link."""
        self._window = Window(source)
        try:
            self.directory: Directory = self._read_directory(limits or ArchiveLimits())
        except BaseException:
            self._window.close()
            raise

    def _read_directory(self, limits: ArchiveLimits) -> Directory:
        window = self._window
        kept = min(window.size, TAIL_BYTES_MAX)
        end = read_end(window.read(window.size - kept, kept), window.size, limits)
        scan = DirectoryScan(window.size, end, limits)
        entries: list[Entry] = []
        for at in range(end.directory_at, end.directory_ends_at, _SCANNED_BYTES):
            piece = window.read(at, min(_SCANNED_BYTES, end.directory_ends_at - at))
            entries.extend(scan.feed(piece))
        scan.finish()
        for entry in scan.laid_out(entries):
            entry.data_at = data_at(window, entry)
            if entry.is_directory and entry.packed_bytes:
                self.check(entry)  # no caller reads a directory's data
        return scan.directory_of(entries)

    def __enter__(self) -> ArchiveReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._window.close()

    @property
    def descriptor(self) -> int:
        """The file descriptor of the archive."""
        return self._window.descriptor

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Files and directories in the order of the archive, without skipped ones."""
        return self.directory.entries

    def read(self, entry: Entry, bytes_max: int) -> bytes | None:
        """The file's bytes; None, without reading, if there are more than ``bytes_max``."""
        if entry.unpacked_bytes > bytes_max:
            return None
        return b"".join(self.pieces(entry))

    def check(self, entry: Entry) -> None:
        """Read the file and discard it. Raises ArchiveRejected if it does not match its entry."""
        for _ in self.pieces(entry):
            pass

    def pieces(self, entry: Entry) -> Iterator[bytes]:
        """The file's bytes piece by piece. They are verified only when the iterator has ended."""
        crc = 0
        left = entry.unpacked_bytes
        unpacked = self._stored(entry) if entry.method == STORED else self._inflated(entry)
        for piece in unpacked:
            left -= len(piece)
            if left < 0:
                raise _wrong_size(entry)
            crc = zlib.crc32(piece, crc)
            yield piece
        if left:
            raise _wrong_size(entry)
        if crc != entry.crc:
            raise rejected(Reason.CHECKSUM_MISMATCH, f"{entry} does not match its checksum.")

    def _stored(self, entry: Entry) -> Iterator[bytes]:
        at = entry.data_at
        end = at + entry.packed_bytes
        while at < end:
            piece = self._window.read(at, min(_PIECE_BYTES, end - at))
            at += len(piece)
            yield piece

    def _inflated(self, entry: Entry) -> Iterator[bytes]:
        inflater = zlib.decompressobj(-zlib.MAX_WBITS)
        for piece in self._stored(entry):
            if inflater.eof:
                raise _left_over(entry)
            packed = piece
            while packed:
                try:
                    unpacked = inflater.decompress(packed, _PIECE_BYTES)
                except zlib.error:
                    raise rejected(Reason.CORRUPT_DATA, f"{entry} cannot be unpacked.") from None
                if unpacked:
                    yield unpacked
                packed = inflater.unconsumed_tail
            if inflater.unused_data:
                raise _left_over(entry)
        yield from self._rest(inflater)
        if not inflater.eof:
            raise rejected(Reason.CORRUPT_DATA, f"{entry} ends within its packed data.")

    @staticmethod
    def _rest(inflater: zlib._Decompress) -> Iterator[bytes]:
        """The output that the inflater still holds."""
        while not inflater.eof and (piece := inflater.decompress(b"", _PIECE_BYTES)):
            yield piece


def _wrong_size(entry: Entry) -> ArchiveRejected:
    return rejected(
        Reason.SIZE_MISMATCH, f"{entry} does not have the {entry.unpacked_bytes} bytes it declares."
    )


def _left_over(entry: Entry) -> ArchiveRejected:
    return rejected(Reason.CORRUPT_DATA, f"{entry} has packed data after its end.")
