"""The end of a stream, kept while the stream passes by."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coatcheck.products.graphs.submit_routes import StreamTail

KIB = 1024


async def stream(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def passed(tail: StreamTail, pieces: Sequence[bytes]) -> list[bytes]:
    return [piece async for piece in tail.watch(stream(pieces))]


@given(st.lists(st.binary(max_size=12), max_size=12), st.integers(1, 40))
def test_it_keeps_the_last_bytes_of_all_pieces_and_passes_all_of_them_on(
    pieces: list[bytes], bytes_max: int
) -> None:
    tail = StreamTail(bytes_max)
    assert asyncio.run(passed(tail, pieces)) == pieces
    assert tail.kept == b"".join(pieces)[-bytes_max:]
    assert tail.size == len(b"".join(pieces))


@pytest.mark.parametrize("piece_bytes", [2, 4 * KIB, 300 * KIB])
async def test_what_it_needs_does_not_depend_on_the_size_of_pieces(piece_bytes: int) -> None:
    tail = StreamTail(128 * KIB)
    pieces = (bytes([1]) * piece_bytes for _ in range(600 * KIB // piece_bytes))
    tracemalloc.start()
    try:
        async for _ in tail.watch(stream(pieces)):
            pass
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert tail.kept == bytes([1]) * 128 * KIB
    assert held < 3 * 128 * KIB + piece_bytes


async def test_what_is_kept_can_be_read_while_the_stream_still_passes() -> None:
    tail = StreamTail(4)
    passing = tail.watch(stream([b"abc", b"", b"de", b"fghij"]))
    seen = [(tail.size, tail.kept) async for _ in passing]
    assert seen == [(3, b"abc"), (3, b"abc"), (5, b"bcde"), (10, b"ghij")]
