"""Reads files from a zip archive in place, and checks every byte.

Unpacked bytes are counted against the declared size, so that zip bombs and wrong sizes are noticed
at once, and each file's checksum is verified. Nothing is written to disk.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from coatcheck.archives.directory import TAIL_BYTES_MAX, DirectoryScan, read_end
from coatcheck.archives.entry import STORED, Directory, Entry
from coatcheck.archives.limits import ArchiveLimits
from coatcheck.archives.local import data_at
from coatcheck.archives.reasons import Reason, rejected
from coatcheck.archives.window import Window
from coatcheck.domain.errors import ArchiveRejected

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
