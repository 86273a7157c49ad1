"""Makes zip archives byte by byte, so that any of them can be wrong."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

STORED, DEFLATED = 0, 8
UTF8 = 1 << 11
DESCRIPTOR = 1 << 3
FILE_MODE = 0o100644
MAX16, MAX32 = 0xFFFF, 0xFFFFFFFF


def deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


def extra_field(kind: int, data: bytes) -> bytes:
    return struct.pack("<HH", kind, len(data)) + data


def unicode_path(name: bytes, of: bytes) -> bytes:
    """The extra field that gives the name ``of`` as ``name``."""
    return extra_field(0x7075, struct.pack("<BL", 1, zlib.crc32(of)) + name)


@dataclass
class Part:
    """An entry. What is None is as it should be; ``local_*`` is for the local header alone."""

    name: bytes
    data: bytes = b"print('hello')\n"
    method: int = DEFLATED
    flags: int = 0
    version: int = 20
    made_by: int = 3 << 8 | 20
    mode: int = FILE_MODE
    dos: int = 0
    extra: bytes = b""
    comment: bytes = b""
    disk: int = 0
    packed: bytes | None = None
    crc: int | None = None
    packed_size: int | None = None
    unpacked_size: int | None = None
    header_at: int | None = None
    local_name: bytes | None = None
    local_flags: int | None = None
    local_method: int | None = None
    local_extra: bytes = b""
    local_crc: int | None = None
    local_packed_size: int | None = None
    local_unpacked_size: int | None = None
    local_signature: bytes = b"PK\x03\x04"
    after: bytes = b""
    """What lies between its data and the next entry, such as a data descriptor."""
    listed: bool = True
    """Whether the central directory has it."""

    @property
    def body(self) -> bytes:
        if self.packed is not None:
            return self.packed
        return deflated(self.data) if self.method == DEFLATED else self.data

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Checksum, packed and unpacked size as the central header has them."""
        return (
            zlib.crc32(self.data) if self.crc is None else self.crc,
            len(self.body) if self.packed_size is None else self.packed_size,
            len(self.data) if self.unpacked_size is None else self.unpacked_size,
        )

    def local(self) -> bytes:
        streamed = (self.flags if self.local_flags is None else self.local_flags) & DESCRIPTOR
        crc, packed, unpacked = (0, 0, 0) if streamed else self.sizes
        name = self.name if self.local_name is None else self.local_name
        return (
            struct.pack(
                "<4s5H3L2H",
                self.local_signature,
                self.version,
                self.flags if self.local_flags is None else self.local_flags,
                self.method if self.local_method is None else self.local_method,
                0,
                0x21,
                crc if self.local_crc is None else self.local_crc,
                packed if self.local_packed_size is None else self.local_packed_size,
                unpacked if self.local_unpacked_size is None else self.local_unpacked_size,
                len(name),
                len(self.local_extra),
            )
            + name
            + self.local_extra
            + self.body
            + self.after
        )

    def central(self, at: int) -> bytes:
        crc, packed, unpacked = self.sizes
        return (
            struct.pack(
                "<4s6H3L5H2L",
                b"PK\x01\x02",
                self.made_by,
                self.version,
                self.flags,
                self.method,
                0,
                0x21,
                crc,
                packed,
                unpacked,
                len(self.name),
                len(self.extra),
                len(self.comment),
                self.disk,
                0,
                self.mode << 16 | self.dos,
                at if self.header_at is None else self.header_at,
            )
            + self.name
            + self.extra
            + self.comment
        )


def descriptor(part: Part, *, signed: bool = True, large: bool = False) -> bytes:
    crc, packed, unpacked = part.sizes
    body = struct.pack("<LQQ" if large else "<LLL", crc, packed, unpacked)
    return (b"PK\x07\x08" if signed else b"") + body


def streamed(name: bytes, *, signed: bool = True, large: bool = False, **fields: object) -> Part:
    """An entry whose sizes follow its data."""
    part = Part(name, flags=DESCRIPTOR, **fields)  # type: ignore[arg-type]
    part.after = descriptor(part, signed=signed, large=large)
    return part


@dataclass
class End:
    """The end record. What is None is as it should be."""

    disk: int = 0
    directory_disk: int = 0
    on_disk: int | None = None
    entries: int | None = None
    length: int | None = None
    offset: int | None = None
    comment: bytes = b""
    comment_length: int | None = None


@dataclass
class End64:
    """A ZIP64 end record and its locator."""

    size_field: int = 44
    entries: int | None = None
    length: int | None = None
    offset: int | None = None
    disk: int = 0
    locator_disk: int = 0
    locator_offset: int | None = None
    disks: int = 1
    signature: bytes = b"PK\x06\x06"


def archive(
    *parts: Part,
    prefix: bytes = b"",
    prefix_counts: bool = False,
    before_directory: bytes = b"",
    in_directory: bytes = b"",
    before_end: bytes = b"",
    end: End | None = None,
    end64: End64 | None = None,
    trailing: bytes = b"",
    order: Sequence[int] | None = None,
) -> bytes:
    """The archive of these parts. ``prefix_counts``: offsets are from the beginning of the file."""
    out = bytearray(prefix)
    base = 0 if prefix_counts else len(prefix)
    starts: list[int] = []
    for part in parts:
        starts.append(len(out) - base)
        out += part.local()
    out += before_directory
    offset = len(out) - base
    headers = [
        part.central(start) for part, start in zip(parts, starts, strict=True) if part.listed
    ]
    directory = b"".join(headers[at] for at in order or range(len(headers))) + in_directory
    out += directory + before_end
    end = end or End()
    if end64 is not None:
        at = len(out) - base
        entries = len(headers) if end64.entries is None else end64.entries
        out += struct.pack(
            "<4sQ2H2L4Q",
            end64.signature,
            end64.size_field,
            45,
            45,
            end64.disk,
            0,
            entries,
            entries,
            len(directory) if end64.length is None else end64.length,
            offset if end64.offset is None else end64.offset,
        )
        out += struct.pack(
            "<4sLQL",
            b"PK\x06\x07",
            end64.locator_disk,
            at if end64.locator_offset is None else end64.locator_offset,
            end64.disks,
        )
    entries = len(headers) if end.entries is None else end.entries
    out += struct.pack(
        "<4s4H2LH",
        b"PK\x05\x06",
        end.disk,
        end.directory_disk,
        entries if end.on_disk is None else end.on_disk,
        entries,
        len(directory) if end.length is None else end.length,
        offset if end.offset is None else end.offset,
        len(end.comment) if end.comment_length is None else end.comment_length,
    )
    return bytes(out + end.comment + trailing)
