"""Data types for a zip's entries, as its central directory describes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from coatcheck.archives.reasons import labelled

STORED: Final = 0
DEFLATED: Final = 8

ENCRYPTED_FLAGS: Final = 1 << 0 | 1 << 6 | 1 << 13
DESCRIPTOR_FLAG: Final = 1 << 3
KNOWN_FLAGS: Final = 1 << 1 | 1 << 2 | DESCRIPTOR_FLAG | 1 << 11
"""Compression level (1, 2), sizes after the data (3), and a UTF-8 name (11)."""


Skipped = Literal["symlink", "name_case"]
"""Why an entry is left out: it is a symbolic link, or its name differs from another one only in
case (or in how its letters are composed)."""


@dataclass(slots=True)
class Entry:
    """A file or directory. ``number`` counts from 1, in the order of the central directory.

    ``header_at`` is where its local header begins; ``ends_at`` is where the next entry or the
    central directory begins, so all bytes between belong to this entry. ``ends_at`` is set when all
    entries are known; ``data_at``, where its data begins, when its local header has been read.
    """

    number: int
    name: str
    method: int
    flags: int
    crc: int
    packed_bytes: int
    unpacked_bytes: int
    header_at: int
    is_symlink: bool = False
    ends_at: int = 0
    data_at: int = field(default=0, compare=False)

    @property
    def is_directory(self) -> bool:
        return self.name.endswith("/")

    @property
    def has_descriptor(self) -> bool:
        return bool(self.flags & DESCRIPTOR_FLAG)

    def __str__(self) -> str:
        return labelled(self.number, self.name)


@dataclass(frozen=True, slots=True)
class Directory:
    """The entries in the order in which they lie in the archive. ``skipped`` counts the entries
    that are left out."""

    entries: tuple[Entry, ...]
    unpacked_bytes: int
    skipped: Mapping[str, int]
