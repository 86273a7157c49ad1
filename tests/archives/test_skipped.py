"""What no graph can be made of is left out and counted; how much an archive may hold is a limit."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path

import pytest

from coatcheck.archives import TAIL_BYTES_MAX, ArchiveLimits, ArchiveReader, Reason
from coatcheck.archives.directory import DirectoryScan, check_directory, directory_in, read_end
from coatcheck.archives.names import NameCheck, differing_in_case
from coatcheck.domain.errors import ArchiveRejected
from tests.archives.forge import STORED, UTF8, Part, archive

LINK = 0o120777
GOOD = Part(b"src/good.py", b"x = 1\n")


def opened(tmp_path: Path, *parts: Part) -> tuple[set[str], dict[str, int]]:
    """The names that are read, and what was skipped."""
    path = tmp_path / "archive.zip"
    path.write_bytes(archive(*parts))
    with ArchiveReader(path) as reader:
        for entry in reader.entries:
            reader.check(entry)
        return {entry.name for entry in reader.entries}, dict(reader.directory.skipped)


@pytest.mark.parametrize(
    "link",
    [
        Part(b"a.py", b"/etc/passwd", mode=LINK),
        Part(b"a.py", b"../..", mode=LINK, made_by=20),
        Part(b"a/", b"", mode=LINK),
        Part(b"a", made_by=10 << 8 | 20, dos=0x400),
        Part(b"a", b"not even packed well", mode=LINK, crc=1),
    ],
    ids=["made on Unix", "made on DOS", "to a directory", "a reparse point", "of broken bytes"],
)
def test_a_symbolic_link_is_skipped(tmp_path: Path, link: Part) -> None:
    assert opened(tmp_path, GOOD, link) == ({"src/good.py"}, {"symlink": 1})


@pytest.mark.parametrize(
    ("names", "kept"),
    [
        (["src/main.py", "SRC/Main.py"], {"SRC/Main.py"}),
        (["A.py", "a.py", "b.py"], {"A.py", "b.py"}),
        (["x.py", "X.py", "x.PY"], {"X.py"}),
        (["straße.py", "STRASSE.py"], {"STRASSE.py"}),
        (["é.py", "e\u0301.py"], {"e\u0301.py"}),
        (["\u212a.py", "k.py"], {"k.py"}),
        (["BUILD", "build/rules.py"], {"build/rules.py"}),
        (["a/b/c.py", "A"], {"a/b/c.py"}),
        (["A/x.py", "a/y.py"], {"A/x.py", "a/y.py"}),
        (["A", "a-b.py", "a.py", "a/b.py"], {"a-b.py", "a.py", "a/b.py"}),
    ],
)
def test_of_names_that_differ_only_in_case_one_is_kept_whatever_their_order(
    tmp_path: Path, names: list[str], kept: set[str]
) -> None:
    for order in (names, names[::-1]):
        parts = [Part(name.encode(), b"x", flags=UTF8) for name in order]
        skipped = {"name_case": len(names) - len(kept)} if len(names) > len(kept) else {}
        assert opened(tmp_path, *parts) == (kept, skipped)


def test_a_directory_that_differs_only_in_case_holds_nothing_to_skip(tmp_path: Path) -> None:
    usual = {"data": b"", "method": STORED, "mode": 0o40755, "dos": 0x10}
    folders = [Part(name, **usual) for name in (b"Docs/", b"docs/")]  # type: ignore[arg-type]
    assert opened(tmp_path, GOOD, *folders) == ({"src/good.py", "Docs/", "docs/"}, {})


def test_how_many_entries_and_bytes_there_may_be_is_said_by_whoever_reads(tmp_path: Path) -> None:
    path = tmp_path / "archive.zip"
    path.write_bytes(archive(*(Part(b"%d" % at, bytes(1000)) for at in range(10))))
    ArchiveReader(path, ArchiveLimits(entries=10, unpacked_bytes=10_000)).close()
    for limits, reason in (
        (ArchiveLimits(entries=9), Reason.TOO_MANY_ENTRIES),
        (ArchiveLimits(unpacked_bytes=9_999), Reason.UNPACKED_TOO_LARGE),
    ):
        with pytest.raises(ArchiveRejected) as refusal:
            ArchiveReader(path, limits)
        assert refusal.value.reason == reason


# Very many entries

_LOCAL = struct.Struct("<4s5H3L2H")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_MODE = 0o100644 << 16


def crowd(number: int) -> bytes:
    """So many empty files; the last one is source code."""
    files, directory = bytearray(), bytearray()
    for at in range(number):
        name = b"main.py" if at == number - 1 else b"assets/%d/%07d.png" % (at % 1000, at)
        place = len(files)
        files += _LOCAL.pack(b"PK\x03\x04", 20, 0, 0, 0, 0, 0, 0, 0, len(name), 0) + name
        head = (0x0314, 20, 0, 0, 0, 0, 0, 0, 0, len(name), 0, 0, 0, 0, _MODE, place)
        directory += _CENTRAL.pack(b"PK\x01\x02", *head) + name
    body = bytes(files) + bytes(directory)
    sizes = (number, number, len(directory), len(files))
    end64 = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, *sizes)
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, len(body), 1)
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    return body + end64 + locator + end


@pytest.fixture(scope="module")
def many() -> bytes:
    return crowd(100_000)


def test_a_hundred_thousand_of_files_are_read(tmp_path: Path, many: bytes) -> None:
    path = tmp_path / "archive.zip"
    path.write_bytes(many)
    with ArchiveReader(path) as reader:
        assert len(reader.entries) == 100_000
        assert reader.read(reader.entries[-1], 10) == b""


def test_a_long_directory_is_checked_in_pieces_without_being_kept(many: bytes) -> None:
    tail, size, limits = many[-TAIL_BYTES_MAX:], len(many), ArchiveLimits()
    end = read_end(tail, size, limits)
    assert directory_in(tail, size, end) is None
    directory = many[end.directory_at : end.directory_ends_at]
    scan = DirectoryScan(size, end, limits)
    found = last = 0
    for at in range(0, len(directory), 300_007):
        for entry in scan.feed(directory[at : at + 300_007]):
            found, last = found + 1, entry.number
    scan.finish()
    assert (found, last) == (100_000, 100_000)


def test_a_long_directory_that_ends_too_soon_is_refused(many: bytes) -> None:
    tail, size, limits = many[-TAIL_BYTES_MAX:], len(many), ArchiveLimits()
    end = read_end(tail, size, limits)
    directory = many[end.directory_at : end.directory_ends_at]
    for changed in (directory[:-1], directory[: len(directory) // 2]):
        with pytest.raises(ArchiveRejected) as refusal:
            check_directory(changed, size, end, limits)
        assert refusal.value.reason == Reason.DIRECTORY_MISMATCH


def test_a_file_is_found_to_be_a_directory_whatever_sorts_between() -> None:
    names = NameCheck()
    for number, name in enumerate(["a", "a!/x.py", "a-b.py", "a.py", "a/b/c.py"], 1):
        names.add(number, name)
    with pytest.raises(ArchiveRejected) as refusal:
        names.finish()
    assert refusal.value.reason == Reason.FILE_AND_DIRECTORY


def test_names_take_as_much_memory_whether_or_not_each_is_deep_in_folders_of_its_own() -> None:
    count = 2000
    deep = [f"{number}{'/x' * 31}" for number in range(count)]

    tracemalloc.start()
    try:
        names = NameCheck()
        for number, name in enumerate(deep, 1):
            names.add(number, name)
        names.finish()
        assert differing_in_case(deep) == set()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 1000 * count
