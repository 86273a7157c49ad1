"""Archives that are refused, each with the reason that it has to be refused for.

``where`` says who can tell: the check of the central directory, which sees the end of the archive
alone (and runs while it is uploaded), or the reader, which sees all of it.
"""

from __future__ import annotations

import io
import random
import stat
import struct
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from tests.archives.forge import (
    DEFLATED,
    DESCRIPTOR,
    MAX16,
    MAX32,
    STORED,
    UTF8,
    End,
    End64,
    Part,
    archive,
    deflated,
    extra_field,
    streamed,
    unicode_path,
)

Where = Literal["directory", "reader"]
MIB = 1024 * 1024


@dataclass(frozen=True)
class Hostile:
    """An archive to refuse."""

    name: str
    build: Callable[[], bytes]
    reason: str
    where: Where = "directory"


GOOD = b"src/good.py"


def _one(name: str, reason: str, part: Part, where: Where = "directory") -> Hostile:
    """The part beside a good one, so that no case is refused for being alone."""
    return Hostile(name, lambda: archive(Part(GOOD), part), reason, where)


def _named(spelling: str, name: bytes, reason: str, flags: int = 0) -> Hostile:
    return _one(f"name: {spelling}", reason, Part(name, flags=flags))


def _names() -> list[Hostile]:
    return [
        _named("climbs out", b"../evil.py", "path_traversal"),
        _named("climbs out from within", b"a/../../evil.py", "path_traversal"),
        _named("climbs and stays inside", b"a/../evil.py", "path_traversal"),
        _named("ends with dots", b"a/..", "path_traversal"),
        _named("is dots alone", b"..", "path_traversal"),
        _named("is a directory above", b"../", "path_traversal"),
        _named("has a dot segment", b"a/./evil.py", "path_traversal"),
        _named("begins with a dot segment", b"./evil.py", "path_traversal"),
        _named("is absolute", b"/etc/passwd", "absolute_path"),
        _named("is the root", b"/", "absolute_path"),
        _named("is a network path", b"//host/share/evil.py", "absolute_path"),
        _named("begins with a drive", b"C:/evil.py", "drive_path"),
        _named("is relative to a drive", b"c:evil.py", "drive_path"),
        _named("begins with a drive and a backslash", b"C:\\evil.py", "backslash"),
        _named("climbs with backslashes", b"..\\..\\evil.py", "backslash"),
        _named("has a backslash", b"a\\b.py", "backslash"),
        _named("is a network path with backslashes", b"\\\\host\\evil.py", "backslash"),
        _named("has a NUL", b"evil.py\x00.txt", "control_character"),
        _named("is a NUL", b"\x00", "control_character"),
        _named("has a line feed", b"a\nb.py", "control_character"),
        _named("has an escape sequence", b"\x1b[2Ja.py", "control_character"),
        _named("has a DEL", b"a\x7f.py", "control_character"),
        _named("has a C1 control", "a\u0085.py".encode(), "control_character", UTF8),
        _named("has a line separator", "a\u2028.py".encode(), "control_character", UTF8),
        _named("is turned around", "a\u202eyp.exe".encode(), "control_character", UTF8),
        _named("is empty", b"", "empty_name"),
        _named("has an empty segment", b"a//evil.py", "empty_name"),
        _named("ends with two slashes", b"a//", "empty_name"),
        _named("is not UTF-8 and says it is", b"caf\xe9.py", "name_not_utf8", UTF8),
        _named("is in code page 437", b"caf\x82.py", "name_not_utf8"),
        _named("has an overlong slash", b"a\xc0\xaf..\xc0\xafb", "name_not_utf8", UTF8),
        _named("has a surrogate", b"a\xed\xa0\x80.py", "name_not_utf8", UTF8),
        _named("has 256 bytes", b"a" * 256, "path_too_long"),
        _named("has 65,535 bytes", b"a" * MAX16, "path_too_long"),
        _named("is 33 deep", b"/".join([b"d"] * 33), "path_too_deep"),
        _named("is 127 deep", b"/".join([b"d"] * 127) + b"/", "path_too_deep"),
        _one(
            "name: another one in the central extra field",
            "name_mismatch",
            Part(b"a.py", extra=unicode_path(b"../evil.py", b"a.py")),
        ),
        _one(
            "name: an extra field for yet another name",
            "name_mismatch",
            Part(b"a.py", extra=unicode_path(b"a.py", b"b.py")),
        ),
        _one(
            "name: another one in the local extra field",
            "name_mismatch",
            Part(b"a.py", local_extra=unicode_path(b"../evil.py", b"a.py")),
            "reader",
        ),
    ]


def _pair(name: str, first: bytes, second: bytes, reason: str) -> Hostile:
    return Hostile(
        f"two names: {name}",
        lambda: archive(Part(first, flags=UTF8), Part(second, flags=UTF8)),
        reason,
    )


def _pairs() -> list[Hostile]:
    return [
        _pair("equal", b"a.py", b"a.py", "duplicate_name"),
        _pair("a file in a file", b"a", b"a/b.py", "file_and_directory"),
        _pair("a file in a file, the other order", b"a/b/c.py", b"a", "file_and_directory"),
        Hostile(
            "two names: a file behind a link",
            lambda: archive(Part(b"a", b"/etc", mode=0o120777), Part(b"a/passwd")),
            "file_and_directory",
        ),
        Hostile(
            "two names: a link and a file",
            lambda: archive(Part(b"a.py", b"/etc", mode=0o120777), Part(b"a.py")),
            "duplicate_name",
        ),
        Hostile(
            "two names: a file and a directory",
            lambda: archive(Part(b"a"), _directory(b"a/")),
            "file_and_directory",
        ),
        Hostile(
            "two names: directories",
            lambda: archive(Part(GOOD), _directory(b"x/"), _directory(b"x/")),
            "duplicate_name",
        ),
    ]


def _directory(name: bytes, **fields: object) -> Part:
    usual = {"data": b"", "method": STORED, "mode": 0o40755, "dos": 0x10}
    return Part(name, **(usual | fields))  # type: ignore[arg-type]


def _kinds() -> list[Hostile]:
    special = {
        "a fifo": stat.S_IFIFO,
        "a character device": stat.S_IFCHR,
        "a block device": stat.S_IFBLK,
        "a socket": stat.S_IFSOCK,
        "of a kind nobody knows": 0o110000,
    }
    return [
        Hostile(
            "kind: a symlink alone",
            lambda: archive(Part(b"a", b"/etc/passwd", mode=0o120777)),
            "no_files",
        ),
        *(
            _one(f"kind: {name}", "special_file", Part(b"a", b"", mode=mode | 0o644))
            for name, mode in special.items()
        ),
        _one("kind: a directory by its mode", "kind_mismatch", Part(b"a", b"", mode=0o40755)),
        _one("kind: a directory by its attributes", "kind_mismatch", Part(b"a", b"", dos=0x10)),
        _one("kind: a directory by its name", "kind_mismatch", Part(b"a/", b"")),
        _one(
            "kind: a directory with data",
            "directory_with_data",
            _directory(b"a/", data=b"hidden"),
        ),
        _one(
            "kind: a directory with packed data",
            "directory_with_data",
            _directory(b"a/", method=DEFLATED, packed=deflated(b"hidden"), unpacked_size=0),
        ),
        _one(
            "kind: a directory that hides a byte",
            "corrupt_data",
            _directory(b"a/", method=DEFLATED, packed=b"\xff\xff"),
            "reader",
        ),
    ]


def _features() -> list[Hostile]:
    return [
        _one("feature: encrypted", "encrypted", Part(b"a", flags=1)),
        _one("feature: strongly encrypted", "encrypted", Part(b"a", flags=1 << 6)),
        _one("feature: masked headers", "encrypted", Part(b"a", flags=1 << 13)),
        _one("feature: AES", "encrypted", Part(b"a", method=99, flags=1, packed=b"xx")),
        _one(
            "feature: AES by its extra field",
            "encrypted",
            Part(b"a", extra=extra_field(0x9901, b"\x02\x00AE\x03\x08\x00")),
        ),
        _one(
            "feature: encrypted in the local header alone",
            "header_mismatch",
            Part(b"a", local_flags=1),
            "reader",
        ),
        *(
            _one(f"feature: method {method}", "unknown_method", Part(b"a", method=method))
            for method in (1, 6, 9, 12, 14, 93, 95, 97, 98, MAX16)
        ),
        _one("feature: patched data", "unsupported_feature", Part(b"a", flags=1 << 5)),
        _one("feature: enhanced deflating", "unsupported_feature", Part(b"a", flags=1 << 4)),
        _one("feature: a reserved flag", "unsupported_feature", Part(b"a", flags=1 << 15)),
        _one("feature: version 6.3", "unsupported_feature", Part(b"a", version=63)),
        _one("feature: half an extra field", "bad_extra_field", Part(b"a", extra=b"\x75\x70\x01")),
        _one(
            "feature: an extra field that runs on",
            "bad_extra_field",
            Part(b"a", extra=struct.pack("<HH", 0x5455, 200) + b"x"),
        ),
        _one(
            "feature: a local extra field that runs on",
            "bad_extra_field",
            Part(b"a", local_extra=struct.pack("<HH", 0x5455, 200) + b"x"),
            "reader",
        ),
        _one(
            "feature: a Unicode path cut short",
            "bad_extra_field",
            Part(b"a", extra=extra_field(0x7075, b"\x01")),
        ),
    ]


def _sizes() -> list[Hostile]:
    data = b"a = 1\n" * 100
    packed = deflated(data)
    return [
        _one(
            "size: stored, and two sizes",
            "size_mismatch",
            Part(b"a.py", data, method=STORED, unpacked_size=7),
        ),
        _one("size: deflated to nothing", "size_mismatch", Part(b"a.py", data, packed=b"")),
        _one(
            "size: more comes out than promised",
            "size_mismatch",
            Part(b"a.py", data, unpacked_size=len(data) - 1),
            "reader",
        ),
        _one(
            "size: less comes out than promised",
            "size_mismatch",
            Part(b"a.py", data, unpacked_size=len(data) + 1),
            "reader",
        ),
        _one(
            "size: nothing is promised and something comes",
            "size_mismatch",
            Part(b"a.py", data, unpacked_size=0),
            "reader",
        ),
        _one(
            "size: packed data after the end of its stream",
            "corrupt_data",
            Part(b"a.py", data, packed=packed + b"hidden"),
            "reader",
        ),
        _one(
            "size: a second stream after the first",
            "corrupt_data",
            Part(b"a.py", data, packed=packed + packed),
            "reader",
        ),
        _one(
            "size: a stream cut short",
            "corrupt_data",
            Part(b"a.py", data, packed=packed[:-1]),
            "reader",
        ),
        _one(
            "size: no stream at all",
            "corrupt_data",
            Part(b"a.py", data, packed=b"\xff" * 40),
            "reader",
        ),
        _one("size: a wrong checksum", "checksum_mismatch", Part(b"a.py", data, crc=1), "reader"),
        _one(
            "size: a wrong checksum of stored data",
            "checksum_mismatch",
            Part(b"a.py", data, method=STORED, crc=1),
            "reader",
        ),
        _one(
            "size: another one in the local header",
            "header_mismatch",
            Part(b"a.py", data, local_unpacked_size=5),
            "reader",
        ),
        _one(
            "size: another packed one in the local header",
            "header_mismatch",
            Part(b"a.py", data, local_packed_size=5),
            "reader",
        ),
        _one(
            "size: another checksum in the local header",
            "header_mismatch",
            Part(b"a.py", data, local_crc=5),
            "reader",
        ),
        _one(
            "size: none in the local header, and no descriptor",
            "header_mismatch",
            Part(b"a.py", data, local_crc=0, local_packed_size=0, local_unpacked_size=0),
            "reader",
        ),
        _one(
            "size: a descriptor that was announced and is missing",
            "header_mismatch",
            Part(b"a.py", data, flags=DESCRIPTOR),
            "reader",
        ),
        _one(
            "size: a descriptor with other sizes",
            "header_mismatch",
            Part(b"a.py", data, flags=DESCRIPTOR, after=b"PK\x07\x08" + b"\x01" * 12),
            "reader",
        ),
        Hostile("size: a descriptor cut short", _short_descriptor, "header_mismatch", "reader"),
        _one(
            "size: a descriptor that was not announced",
            "gap_between_entries",
            Part(b"a.py", data, after=b"PK\x07\x08" + b"\x00" * 12),
            "reader",
        ),
    ]


def _short_descriptor() -> bytes:
    part = streamed(b"a.py", signed=False)
    part.after = part.after[:-1]
    return archive(part, Part(GOOD))


def _bombs() -> list[Hostile]:
    zeros = bytes(2 * MIB)
    return [
        _one("bomb: 2 MiB of zeros", "ratio_too_high", Part(b"a", zeros)),
        Hostile("bomb: made of small files", _crowd_of_zeros, "ratio_too_high"),
        Hostile("bomb: files share a kernel", lambda: _overlapping_bomb(900_000), "ratio_too_high"),
        Hostile("bomb: files quote each other", lambda: _quoting_bomb(500_000), "ratio_too_high"),
        Hostile(
            "bomb: files share a small kernel",
            lambda: _overlapping_bomb(90_000),
            "overlapping_entries",
        ),
        Hostile(
            "bomb: files quote each other, and are small",
            lambda: _quoting_bomb(50_000),
            "overlapping_entries",
        ),
        _one(
            "bomb: that says it is small",
            "size_mismatch",
            Part(b"a.py", zeros, unpacked_size=100),
            "reader",
        ),
        _one(
            "bomb: stored, that says it unpacks",
            "size_mismatch",
            Part(b"a", b"x" * 100, method=STORED, unpacked_size=1 << 30),
        ),
        _one(
            "bomb: a file of 4 GiB less a byte",
            "ratio_too_high",
            Part(b"a", bytes(100), unpacked_size=MAX32 - 1),
        ),
        _one(
            "bomb: a file of 16 EiB",
            "unpacked_too_large",
            Part(
                b"a",
                version=45,
                unpacked_size=MAX32,
                extra=extra_field(1, struct.pack("<Q", (1 << 64) - 1)),
            ),
        ),
        Hostile("bomb: many files of 300 MiB", _sum_too_large, "unpacked_too_large"),
        Hostile(
            "bomb: 4 billion files, by the count alone",
            lambda: archive(
                Part(GOOD),
                end=End(entries=MAX16, length=MAX32, offset=MAX32),
                end64=End64(entries=4_000_000_000),
            ),
            "too_many_entries",
        ),
        Hostile("bomb: an archive within, that lies outside", _nested_bomb, "ratio_too_high"),
    ]


def _crowd_of_zeros() -> bytes:
    return archive(*(Part(b"f%d" % at, bytes(1_000_000)) for at in range(8)))


def _sum_too_large() -> bytes:
    """What is packed does not matter: the directory alone is enough to refuse it."""
    packed = random.Random(1).randbytes(4 * MIB)
    return archive(*(Part(b"f%d" % at, packed=packed, unpacked_size=300 * MIB) for at in range(36)))


def _nested_bomb() -> bytes:
    inner = archive(Part(b"zeros", bytes(60 * MIB)))
    return archive(Part(GOOD), Part(b"inner.zip", inner * 40))


def _overlapping_bomb(size: int) -> bytes:
    kernel = Part(b"kernel", bytes(size))
    others = [
        Part(b"f%d" % at, bytes(size), header_at=0, packed=b"\x03\x00", packed_size=900)
        for at in range(5)
    ]
    return archive(kernel, *others)


def _quoting_bomb(size: int) -> bytes:
    """Each file is a stored block that holds the local header of the next, up to one kernel."""
    parts = [Part(b"f9", bytes(size))]
    body = parts[0].local()
    for at in range(8, 0, -1):
        quoted = b"\x00" + struct.pack("<HH", len(body) % 65536, ~len(body) % 65536) + body
        part = Part(b"f%d" % at, bytes(size + at), packed=quoted)
        body = part.local()
        parts.insert(0, part)
    headers, begin = [], 0
    for part in parts:
        headers.append(part.central(begin))
        begin += 30 + len(part.name) + 5
    directory = b"".join(headers)
    end = struct.pack(
        "<4s4H2LH", b"PK\x05\x06", 0, 0, len(parts), len(parts), len(directory), len(body), 0
    )
    return body + directory + end


def _places() -> list[Hostile]:
    good, other = Part(GOOD), Part(b"b.py")
    hole = b"hidden bytes"
    return [
        Hostile(
            "place: bytes in front", lambda: archive(good, prefix=b"#!/bin/sh\n"), "prefix_bytes"
        ),
        Hostile(
            "place: bytes in front that offsets count",
            lambda: archive(good, prefix=b"MZ" * 40, prefix_counts=True),
            "prefix_bytes",
        ),
        Hostile(
            "place: bytes in front of a ZIP64 archive",
            lambda: archive(good, prefix=b"MZ" * 40, end64=End64()),
            "prefix_bytes",
        ),
        Hostile(
            "place: an archive in front of an archive",
            lambda: archive(other, prefix=archive(good)),
            "prefix_bytes",
        ),
        Hostile(
            "place: a first entry that is not listed",
            lambda: archive(Part(b"hidden", listed=False), good),
            "prefix_bytes",
        ),
        Hostile("place: bytes behind", lambda: archive(good, trailing=b"\n"), "trailing_bytes"),
        Hostile(
            "place: bytes behind, more than a comment can have",
            lambda: archive(good, trailing=bytes(70_000)),
            "trailing_bytes",
        ),
        Hostile(
            "place: bytes behind a comment",
            lambda: archive(good, end=End(comment=b"hello"), trailing=b"x"),
            "trailing_bytes",
        ),
        Hostile(
            "place: an archive behind an archive",
            lambda: archive(good) + archive(other),
            "prefix_bytes",
        ),
        Hostile(
            "place: an archive in the comment",
            lambda: archive(good, end=End(comment=archive(other))),
            "several_end_records",
        ),
        Hostile(
            "place: an end record in the comment",
            lambda: archive(good, end=End(comment=b"PK\x05\x06" + bytes(18))),
            "several_end_records",
        ),
        Hostile(
            "place: an end record in the comment that does not fit",
            lambda: archive(good, end=End(comment=b"PK\x05\x06" + b"\xff" * 18)),
            "several_end_records",
        ),
        Hostile(
            "place: an end record in an entry's comment that fits, too",
            lambda: archive(
                Part(b"a.py", comment=b"PK\x05\x06" + bytes(16) + struct.pack("<H", 22))
            ),
            "several_end_records",
        ),
        Hostile(
            "place: a hole between entries",
            lambda: archive(good, Part(b"a", after=hole), other),
            "gap_between_entries",
            "reader",
        ),
        Hostile(
            "place: a wide hole between entries",
            lambda: archive(good, Part(b"a", after=hole * 10_000), other),
            "gap_between_entries",
        ),
        Hostile(
            "place: an entry that is not listed",
            lambda: archive(good, Part(b"hidden", listed=False), other),
            "gap_between_entries",
            "reader",
        ),
        Hostile(
            "place: a hole before the directory",
            lambda: archive(good, before_directory=hole),
            "gap_between_entries",
            "reader",
        ),
        Hostile(
            "place: a hole after the directory",
            lambda: archive(good, before_end=hole),
            "directory_mismatch",
        ),
        Hostile(
            "place: a hole within the directory",
            lambda: archive(good, in_directory=hole),
            "directory_mismatch",
        ),
        Hostile(
            "place: two entries at one place",
            lambda: archive(good, Part(b"a", header_at=0)),
            "overlapping_entries",
        ),
        Hostile(
            "place: an entry within another",
            lambda: archive(Part(GOOD, b"x" * 500, method=STORED), Part(b"a", header_at=100)),
            "overlapping_entries",
        ),
        Hostile(
            "place: an entry that runs into the directory",
            lambda: archive(good, Part(b"a", packed_size=5_000)),
            "overlapping_entries",
        ),
        Hostile(
            "place: an entry beyond the end",
            lambda: archive(good, Part(b"a", header_at=1_000_000)),
            "gap_between_entries",
        ),
        Hostile(
            "place: an entry that is off by a byte",
            lambda: archive(good, Part(b"a", b"x" * 500, method=STORED, header_at=61)),
            "overlapping_entries",
        ),
        Hostile(
            "place: a directory elsewhere",
            lambda: archive(good, end=End(offset=1)),
            "prefix_bytes",
        ),
        Hostile(
            "place: a directory beyond the end",
            lambda: archive(good, end=End(offset=10_000)),
            "directory_mismatch",
        ),
        Hostile(
            "place: a directory shorter than it is",
            lambda: archive(good, end=End(length=10)),
            "directory_mismatch",
        ),
        Hostile(
            "place: fewer entries than there are",
            lambda: archive(good, other, end=End(entries=1)),
            "directory_mismatch",
        ),
        Hostile(
            "place: more entries than there are",
            lambda: archive(good, end=End(entries=2)),
            "directory_mismatch",
        ),
        Hostile(
            "place: no entries counted",
            lambda: archive(good, end=End(entries=0)),
            "directory_mismatch",
        ),
    ]


def _headers() -> list[Hostile]:
    return [
        _one(
            "header: another name", "header_mismatch", Part(b"a.py", local_name=b"b.py"), "reader"
        ),
        _one(
            "header: a name that climbs",
            "header_mismatch",
            Part(b"abcdefg.py", local_name=b"../evil.py"),
            "reader",
        ),
        _one(
            "header: a longer name",
            "header_mismatch",
            Part(b"a.py", local_name=b"a.py.sh"),
            "reader",
        ),
        _one(
            "header: another case", "header_mismatch", Part(b"a.py", local_name=b"A.py"), "reader"
        ),
        _one(
            "header: another method", "header_mismatch", Part(b"a", local_method=STORED), "reader"
        ),
        _one("header: other flags", "header_mismatch", Part(b"a", local_flags=UTF8), "reader"),
        _one(
            "header: no header there",
            "header_mismatch",
            Part(b"a", local_signature=b"PK\x03\x05"),
            "reader",
        ),
        _one(
            "header: that of the directory there",
            "header_mismatch",
            Part(b"a", local_signature=b"PK\x01\x02"),
            "reader",
        ),
    ]


def _zip64() -> list[Hostile]:
    good = Part(GOOD)
    large = extra_field(1, struct.pack("<Q", 15))
    return [
        _one("zip64: announced and missing", "zip64_inconsistent", Part(b"a", unpacked_size=MAX32)),
        _one("zip64: there for no reason", "zip64_inconsistent", Part(b"a", extra=large)),
        _one(
            "zip64: too short",
            "zip64_inconsistent",
            Part(b"a", unpacked_size=MAX32, packed_size=MAX32, extra=large),
        ),
        _one(
            "zip64: twice",
            "zip64_inconsistent",
            Part(b"a", unpacked_size=MAX32, extra=large + large),
        ),
        _one(
            "zip64: another size in the local header",
            "header_mismatch",
            Part(
                b"a",
                local_unpacked_size=MAX32,
                local_packed_size=MAX32,
                local_extra=extra_field(1, struct.pack("<QQ", 1, 2)),
            ),
            "reader",
        ),
        _one(
            "zip64: two sizes in the local header",
            "zip64_inconsistent",
            Part(b"a", local_extra=extra_field(1, struct.pack("<QQ", 1, 2))),
            "reader",
        ),
        _one(
            "zip64: half in the local header",
            "zip64_inconsistent",
            Part(b"a", local_unpacked_size=MAX32, local_extra=large),
            "reader",
        ),
        Hostile(
            "zip64: end records that count differently",
            lambda: archive(good, end64=End64(entries=2)),
            "zip64_inconsistent",
        ),
        Hostile(
            "zip64: end records with two directories",
            lambda: archive(good, end64=End64(offset=0)),
            "zip64_inconsistent",
        ),
        Hostile(
            "zip64: a locator of nothing",
            lambda: archive(good, end64=End64(signature=b"XXXX")),
            "zip64_inconsistent",
        ),
        Hostile(
            "zip64: a locator of elsewhere",
            lambda: archive(good, end64=End64(locator_offset=1 << 40)),
            "zip64_inconsistent",
        ),
        Hostile(
            "zip64: an end record of another size",
            lambda: archive(good, end64=End64(size_field=100)),
            "zip64_inconsistent",
        ),
        Hostile(
            "zip64: a locator in an entry's comment",
            lambda: archive(Part(GOOD, comment=b"PK\x06\x07" + bytes(16))),
            "split_archive",
        ),
        Hostile(
            "zip64: announced by the end record and missing",
            lambda: archive(good, end=End(offset=MAX32)),
            "directory_mismatch",
        ),
    ]


def _wholes() -> list[Hostile]:
    good = Part(GOOD, b"x = 1\n" * 50, method=STORED)
    whole = archive(good, Part(b"b.py"))
    return [
        Hostile("whole: nothing", lambda: b"", "not_a_zip"),
        Hostile("whole: a text", lambda: b"this is no archive\n" * 100, "not_a_zip"),
        Hostile("whole: a gzip", lambda: b"\x1f\x8b\x08" + bytes(500), "not_a_zip"),
        Hostile("whole: a tar", _tar, "not_a_zip"),
        Hostile("whole: random bytes", lambda: random.Random(7).randbytes(5_000), "not_a_zip"),
        Hostile("whole: cut within an entry", lambda: whole[:100], "truncated"),
        Hostile("whole: cut within the directory", lambda: whole[:-60], "truncated"),
        Hostile("whole: cut within the end record", lambda: whole[:-1], "truncated"),
        Hostile(
            "whole: cut within the comment",
            lambda: archive(good, end=End(comment=b"hello"))[:-1],
            "truncated",
        ),
        Hostile("whole: its beginning is missing", lambda: whole[50:], "directory_mismatch"),
        Hostile("whole: an end record alone", archive, "no_files"),
        Hostile("whole: directories alone", lambda: archive(_directory(b"a/")), "no_files"),
        Hostile("whole: made empty by zipfile", _empty, "no_files"),
        Hostile(
            "whole: a part of several", lambda: archive(good, end=End(disk=1)), "split_archive"
        ),
        Hostile(
            "whole: a directory on another part",
            lambda: archive(good, end=End(directory_disk=2)),
            "split_archive",
        ),
        Hostile(
            "whole: entries on other parts",
            lambda: archive(good, end=End(on_disk=0)),
            "split_archive",
        ),
        _one("whole: an entry on another part", "split_archive", Part(b"a", disk=3)),
        Hostile(
            "whole: several parts by the locator",
            lambda: archive(good, end64=End64(disks=4)),
            "split_archive",
        ),
        Hostile(
            "whole: the first of several parts",
            lambda: b"PK\x07\x08" + archive(good)[:200],
            "split_archive",
        ),
    ]


def _tar() -> bytes:
    import tarfile

    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("a.py"))
    return out.getvalue()


def _empty() -> bytes:
    out = io.BytesIO()
    zipfile.ZipFile(out, "w").close()
    return out.getvalue()


CASES: Sequence[Hostile] = (
    *_names(),
    *_pairs(),
    *_kinds(),
    *_features(),
    *_sizes(),
    *_bombs(),
    *_places(),
    *_headers(),
    *_zip64(),
    *_wholes(),
)
