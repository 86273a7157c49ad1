"""Whatever happens to the bytes of a good archive: it reads the same, or it is refused."""

from __future__ import annotations

import tempfile
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coatcheck.archives import ArchiveReader
from coatcheck.domain.errors import ArchiveRejected
from tests.archives.forge import End64, Part, archive, streamed
from tests.archives.good import packed_by_zipfile

FILES = {"src/a.py": b"import os\n" * 30, "src/b.py": b"x", "c/d/e.txt": b"hello " * 50}

ORIGINALS = {
    "deflated": packed_by_zipfile(FILES),
    "stored": packed_by_zipfile(FILES, deflate=False),
    "streamed": packed_by_zipfile(FILES, seekable=False, comment=b"a comment"),
    "large": packed_by_zipfile(FILES, large=True, seekable=False),
    "forged": archive(
        *(streamed(name.encode(), data=data) for name, data in FILES.items()), end64=End64()
    ),
    "plain": archive(*(Part(name.encode(), data) for name, data in FILES.items())),
}


def _contents(data: bytes) -> dict[str, bytes | None] | None:
    """What the archive holds; None if it is refused. Any other error is the test's to fail by.

    A bit can make a file a symbolic link, which is skipped: it counts as read if it is said to be.
    """
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        try:
            with ArchiveReader(file.fileno()) as reader:
                found = {entry.name: reader.read(entry, 10_000) for entry in reader.entries}
                left_out = FILES.keys() - found.keys()
                if reader.directory.skipped == {"symlink": len(left_out)}:
                    found |= {name: FILES[name] for name in left_out}
                return found
        except ArchiveRejected:
            return None


def _overwritten(data: bytes, at: int, piece: bytes) -> bytes:
    return data[:at] + piece + data[at + len(piece) :]


MUTATIONS: dict[str, Callable[[bytes, int, bytes], bytes]] = {
    "overwritten": _overwritten,
    "inserted": lambda data, at, piece: data[:at] + piece + data[at:],
    "removed": lambda data, at, piece: data[:at] + data[at + len(piece) :],
    "cut off": lambda data, at, piece: data[:at],
    "repeated": lambda data, at, piece: data[: at + len(piece)] + data[at:],
}


@pytest.mark.parametrize("original", ORIGINALS)
@settings(max_examples=150, deadline=None)
@given(
    kind=st.sampled_from(sorted(MUTATIONS)),
    place=st.floats(0, 1, exclude_max=True),
    piece=st.one_of(
        st.binary(min_size=1, max_size=8),
        st.sampled_from([b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06", b"PK\x06\x07", b"\xff" * 4]),
    ),
)
def test_a_mutated_archive_reads_the_same_or_is_refused(
    original: str, kind: str, place: float, piece: bytes
) -> None:
    data = ORIGINALS[original]
    mutated = MUTATIONS[kind](data, int(place * len(data)), piece)
    assert _contents(mutated) in (None, FILES)


@pytest.mark.parametrize("original", ORIGINALS)
def test_every_single_byte_may_be_turned(original: str) -> None:
    data = ORIGINALS[original]
    refused = 0
    for at in range(len(data)):
        contents = _contents(_overwritten(data, at, bytes([data[at] ^ 0xFF])))
        assert contents in (None, FILES), at
        refused += contents is None
    # Times, versions and comments may be anything; the rest may not.
    assert refused > len(data) // 2


@given(st.binary(max_size=500))
def test_any_bytes_are_refused_in_good_order(data: bytes) -> None:
    assert _contents(data) is None
