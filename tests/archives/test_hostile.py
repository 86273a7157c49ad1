"""The corpus of hostile archives: each is refused, for its reason, by the first who can tell."""

from __future__ import annotations

import io
import resource
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from coatcheck.archives import TAIL_BYTES_MAX, ArchiveLimits, ArchiveReader, Reason, read_directory
from coatcheck.domain.errors import ArchiveRejected
from tests.archives.good import packed_by_zipfile
from tests.archives.hostile import CASES, Hostile

LIMITS = ArchiveLimits()
WRITING_EVENTS = frozenset({"os.mkdir", "os.rename", "os.link", "os.symlink", "os.truncate"})
CASES_MIN = 80
GROWTH_BYTES_MAX = 64 * 1024 * 1024
"""What reading may add to the peak of this process: far less than what the bombs would unpack."""

_BYTES_READ_BY_ZIPFILE = 4 * 1024 * 1024
"""Of each entry: enough of a bomb to know that it is not refused."""


class Witness:
    """Sees what this process does to files. An audit hook cannot be taken back, only put aside."""

    def __init__(self) -> None:
        self.watching = False
        self.written: list[str] = []
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[object, ...]) -> None:
        if not self.watching:
            return
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & 3
        if writes or event in WRITING_EVENTS:
            self.written.append(f"{event} {arguments}")


@pytest.fixture(scope="module")
def the_witness() -> Witness:
    return Witness()


@pytest.fixture
def witness(the_witness: Witness) -> Iterator[Witness]:
    the_witness.written.clear()
    yield the_witness
    the_witness.watching = False


def _file(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "archive.zip"
    path.write_bytes(data)
    return path


def _read_all(path: Path) -> None:
    with ArchiveReader(path) as reader:
        for entry in reader.entries:
            reader.check(entry)


def test_the_corpus_has_a_name_for_each_case_and_a_case_for_most_reasons() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= CASES_MIN
    # 500 MB are not made for a test: a smaller limit stands in, below.
    assert {case.reason for case in CASES} == set(Reason) - {Reason.ARCHIVE_TOO_LARGE}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_it_is_refused_for_its_reason(case: Hostile, tmp_path: Path, witness: Witness) -> None:
    data = case.build()
    path = _file(tmp_path, data)
    peak_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    witness.watching = True
    with pytest.raises(ArchiveRejected) as refusal:
        _read_all(path)
    witness.watching = False
    assert refusal.value.reason == case.reason
    assert str(refusal.value).isprintable()
    assert witness.written == []
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak_before) * 1024
    assert grown < GROWTH_BYTES_MAX
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_whether_the_directory_alone_tells_is_as_the_corpus_says(case: Hostile) -> None:
    data = case.build()
    tail = data[-TAIL_BYTES_MAX:]
    if case.where == "directory":
        with pytest.raises(ArchiveRejected) as refusal:
            read_directory(tail, len(data), LIMITS)
        assert refusal.value.reason == case.reason
    else:
        read_directory(tail, len(data), LIMITS)


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.name.startswith("name: ")], ids=lambda case: case.name
)
def test_a_bad_name_is_told_by_its_number_and_not_repeated(case: Hostile, tmp_path: Path) -> None:
    with pytest.raises(ArchiveRejected) as refusal:
        _read_all(_file(tmp_path, case.build()))
    assert str(refusal.value).startswith("Entry 2 ")
    assert "evil" not in str(refusal.value)


def test_an_archive_over_the_size_limit_is_refused_whatever_it_holds() -> None:
    limits = ArchiveLimits(archive_bytes=99)
    with pytest.raises(ArchiveRejected) as refusal:
        read_directory(bytes(100), 100, limits)
    assert refusal.value.reason == Reason.ARCHIVE_TOO_LARGE


def test_a_symbolic_link_to_an_archive_is_not_followed(tmp_path: Path) -> None:
    link = tmp_path / "link.zip"
    link.symlink_to(_file(tmp_path, b""))
    with pytest.raises(OSError, match="symbolic link"):
        ArchiveReader(link)


def test_a_folder_is_no_archive(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="regular file"):
        ArchiveReader(tmp_path)


def test_an_archive_that_shrinks_while_it_is_read_is_refused(tmp_path: Path) -> None:
    data = packed_by_zipfile({"a.py": b"x" * 500_000}, deflate=False)
    path = _file(tmp_path, data)
    with ArchiveReader(path) as reader:
        with path.open("r+b") as file:
            file.truncate(1_000)
        with pytest.raises(ArchiveRejected) as refusal:
            reader.check(reader.entries[0])
    assert refusal.value.reason == Reason.TRUNCATED


def test_zipfile_reads_most_of_the_corpus_without_objection() -> None:
    """Why the reader is our own (docs/adr/0016): it is strict, and not only never unpacks."""
    taken = [case.name for case in CASES if _is_taken_by_zipfile(case.build())]
    assert len(taken) > len(CASES) / 2


def _is_taken_by_zipfile(data: bytes) -> bool:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as opened:
            for entry in opened.infolist():
                if not entry.is_dir():
                    with opened.open(entry) as file:
                        file.read(_BYTES_READ_BY_ZIPFILE)
    except Exception:  # noqa: BLE001 - it raises whatever its code meets, IndexError among others
        return False
    return True
