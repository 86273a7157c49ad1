"""Reads and checks the central directory, from the last few MiB of an archive.

All that can be known without the archive's other bytes is checked here, so that a bad archive is
refused while it is being uploaded. What only local headers and data can tell, ``reader.py`` does.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from coatcheck.archives.central import Header, read_header, too_large
from coatcheck.archives.end_record import EndRecord, read_end_record
from coatcheck.archives.entry import DESCRIPTOR_FLAG, Directory, Entry
from coatcheck.archives.limits import ArchiveLimits
from coatcheck.archives.names import check_names
from coatcheck.archives.reasons import Reason, labelled, rejected

TAIL_BYTES_MAX: Final = ArchiveLimits().directory_bytes
"""How much of the end of an archive has to be kept for ``read_directory``."""

LOCAL_HEADER_BYTES: Final = 30
DESCRIPTOR_BYTES_MAX: Final = 24
_EXTRA_BYTES_MAX: Final = 0xFFFF


def read_directory(tail: bytes, size: int, limits: ArchiveLimits) -> Directory:
    """The central directory of an archive of ``size`` bytes whose last ones are ``tail``.

    ``tail`` is the whole archive, or at least its last ``limits.directory_bytes``. Raises
    ArchiveRejected.
    """
    if size > limits.archive_bytes:
        raise rejected(
            Reason.ARCHIVE_TOO_LARGE,
            f"The archive has {size} bytes; {limits.archive_bytes} are allowed.",
        )
    end = read_end_record(tail, size)
    headers = _headers(_directory_bytes(tail, size, end), end.entries, limits)
    check_names(header.name for header in headers)
    unpacked = _check_whole(headers, size, limits)
    return Directory(_laid_out(headers, end.directory_at), end.directory_at, unpacked)


def _directory_bytes(tail: bytes, size: int, end: EndRecord) -> bytes:
    base = size - len(tail)
    if end.directory_at < base:
        raise rejected(
            Reason.DIRECTORY_TOO_LARGE,
            f"The central directory does not fit into the last {len(tail)} bytes.",
        )
    return tail[end.directory_at - base : end.directory_ends_at - base]


def _headers(directory: bytes, entries: int, limits: ArchiveLimits) -> list[Header]:
    if entries > limits.entries:
        raise rejected(
            Reason.TOO_MANY_ENTRIES,
            f"The archive has {entries} entries; {limits.entries} are allowed.",
        )
    headers: list[Header] = []
    at = 0
    for number in range(1, entries + 1):
        header = read_header(number, directory, at, limits)
        headers.append(header)
        at += header.size
    if at != len(directory):
        raise rejected(
            Reason.DIRECTORY_MISMATCH, "The central directory has more than the entries it counts."
        )
    return headers


def _check_whole(headers: list[Header], size: int, limits: ArchiveLimits) -> int:
    if all(header.name.endswith("/") for header in headers):
        raise rejected(Reason.NO_FILES, "The archive holds no file.")
    unpacked = sum(header.unpacked_bytes for header in headers)
    if unpacked > limits.unpacked_bytes:
        raise too_large(limits)
    if unpacked > limits.ratio_free_bytes and unpacked > limits.ratio * size:
        raise rejected(
            Reason.RATIO_TOO_HIGH,
            f"The archive is more than {limits.ratio} times larger unpacked than packed.",
        )
    return unpacked


def _laid_out(headers: list[Header], directory_at: int) -> tuple[Entry, ...]:
    """The entries in the order of their place, each with the place where the next one begins."""
    headers.sort(key=lambda header: header.header_at)
    if headers[0].header_at != 0:
        raise rejected(Reason.PREFIX_BYTES, "There are bytes before the first entry.")
    starts = [*(header.header_at for header in headers), directory_at]
    return tuple(
        _placed(header, ends_at)
        for header, (_, ends_at) in zip(headers, pairwise(starts), strict=True)
    )


def _placed(header: Header, ends_at: int) -> Entry:
    """Checks that what the entry needs at least has room, and that no more is free than it may use.

    How long its local header is, is not in the directory: the reader checks it to the byte.
    """
    label = labelled(header.number, header.name)
    needed = LOCAL_HEADER_BYTES + len(header.name.encode()) + header.packed_bytes
    spare = ends_at - header.header_at - needed
    if spare < 0:
        raise rejected(
            Reason.OVERLAPPING_ENTRIES,
            f"{label} overlaps with what comes after it.",
        )
    descriptor = DESCRIPTOR_BYTES_MAX if header.flags & DESCRIPTOR_FLAG else 0
    if spare > _EXTRA_BYTES_MAX + descriptor:
        raise rejected(
            Reason.GAP_BETWEEN_ENTRIES,
            f"There are bytes after {label} that belong to no entry.",
        )
    return Entry(
        header.number,
        header.name,
        header.method,
        header.flags,
        header.crc,
        header.packed_bytes,
        header.unpacked_bytes,
        header.header_at,
        ends_at,
    )
