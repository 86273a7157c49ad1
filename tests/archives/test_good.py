"""Archives of the usual programs are read, byte for byte."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from coatcheck.archives import TAIL_BYTES_MAX, ArchiveLimits, ArchiveReader, read_directory
from tests.archives.good import CASES, FILES, Good, packed_by_zipfile

LIMITS = ArchiveLimits()
BYTES_MAX = 1024 * 1024


def _written(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "archive.zip"
    path.write_bytes(data)
    return path


def _contents(reader: ArchiveReader) -> dict[str, bytes | None]:
    return {
        entry.name: reader.read(entry, BYTES_MAX)
        for entry in reader.entries
        if not entry.is_directory
    }


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_it_is_read_byte_for_byte(case: Good, tmp_path: Path) -> None:
    if not case.possible:
        pytest.skip("the program is not installed")
    work = tmp_path / "work"
    work.mkdir()
    data = case.build(work)
    with ArchiveReader(_written(tmp_path, data)) as reader:
        assert _contents(reader) == case.files
        for entry in reader.entries:
            reader.check(entry)
        # What the upload sees of it says the same.
        assert read_directory(data[-TAIL_BYTES_MAX:], len(data), LIMITS) == reader.directory


def test_a_file_larger_than_wanted_is_not_read(tmp_path: Path) -> None:
    path = _written(tmp_path, packed_by_zipfile({"a": b"12345"}))
    with ArchiveReader(path) as reader:
        assert reader.read(reader.entries[0], 4) is None
        assert reader.read(reader.entries[0], 5) == b"12345"


def test_a_descriptor_is_read_from_and_left_open(tmp_path: Path) -> None:
    path = _written(tmp_path, packed_by_zipfile(FILES))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        path.unlink()
        with ArchiveReader(descriptor) as reader:
            assert _contents(reader) == FILES
        os.fstat(descriptor)
    finally:
        os.close(descriptor)


def test_threads_can_read_from_one_reader_at_the_same_time(tmp_path: Path) -> None:
    files = {f"f{at}": bytes([at]) * 300_000 for at in range(20)}
    with (
        ArchiveReader(_written(tmp_path, packed_by_zipfile(files, deflate=False))) as reader,
        ThreadPoolExecutor(8) as pool,
    ):
        read = pool.map(lambda entry: (entry.name, reader.read(entry, BYTES_MAX)), reader.entries)
        assert dict(read) == files
