"""A stream of bytes, cut into blocks of whole lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coatcheck.products.batches.lines import BYTE_ORDER_MARK, LINE_BYTES_MAX, Block, LineSplitter


def split(pieces: list[bytes], *, at_start: bool = True) -> list[Block]:
    splitter = LineSplitter(at_start=at_start)
    blocks = [block for piece in pieces for block in splitter.feed(piece)]
    return [*blocks, *splitter.end()]


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@given(st.lists(st.binary(max_size=20)), st.booleans())
def test_nothing_is_lost_or_cut_wherever_the_stream_is(pieces: list[bytes], at_start: bool) -> None:
    data = b"".join(pieces)
    blocks = split(pieces, at_start=at_start)
    marked = at_start and data.startswith(BYTE_ORDER_MARK)

    assert b"".join(block.data for block in blocks) == data[3 if marked else 0 :]
    assert sum(block.size for block in blocks) == len(data)
    assert all(block.data.endswith(b"\n") for block in blocks[:-1])


def test_a_block_says_where_the_next_one_begins() -> None:
    data = BYTE_ORDER_MARK + b"".join(b"line %d\n" % number for number in range(100_000))
    at = 0
    for block in split(cut(data, 1_000_000)):
        at += block.size
        assert data[:at].endswith(block.data)
        again = split([data[at:]], at_start=False)
        assert b"".join(each.data for each in again) == data[at:]


def test_a_mark_counts_at_the_start_of_the_list_alone() -> None:
    (block,) = split([BYTE_ORDER_MARK + b"1\n"], at_start=False)

    assert block.data == BYTE_ORDER_MARK + b"1\n"


def test_a_mark_that_is_cut_in_two_is_left_out_all_the_same() -> None:
    (block,) = split([b"\xef", b"\xbb", b"\xbf1"])

    assert block == Block(b"1", 4)


@pytest.mark.parametrize("piece_bytes", [100_000, 1 << 20, 10 << 20])
def test_a_line_that_is_too_long_is_passed_over_and_the_others_are_not(piece_bytes: int) -> None:
    long = b"x" * (3 * LINE_BYTES_MAX)
    blocks = split(cut(b"1\n" + long + b"\n2\n" + long + b"\n" + long, piece_bytes))

    assert b"".join(block.data for block in blocks) == b"1\n2\n"
    assert [block.size for block in blocks if block.is_too_long] == [
        len(long) + 1,
        len(long) + 1,
        len(long),
    ]


@pytest.mark.parametrize("piece_bytes", [100_000, 1 << 20, 10 << 20])
def test_a_line_as_long_as_may_be_is_kept(piece_bytes: int) -> None:
    line = b"x" * LINE_BYTES_MAX + b"\n"

    assert [block.data for block in split(cut(line * 2, piece_bytes))] == [line, line]


def test_of_a_line_without_end_next_to_nothing_is_held() -> None:
    splitter = LineSplitter(at_start=True)
    piece = b"x" * (1 << 20)
    for _ in range(2_000):
        assert list(splitter.feed(piece)) == []
        assert splitter.held <= LINE_BYTES_MAX
    (block,) = splitter.end()

    assert block == Block(b"", 2_000 << 20, is_too_long=True)
