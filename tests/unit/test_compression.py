"""Content codings are undone in bounded pieces, however the bytes come."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from coatcheck import compression
from coatcheck.compression import BodyCorrupt, Gzip, gzipped_pieces, unpacker
from tests.products.scrape.packing import PACKED, TEXT, bare_deflate


@PACKED
@pytest.mark.parametrize("step", [1, 7, 100_000])
def test_the_pieces_are_the_same_however_the_bytes_come(
    coding: str, pack: Callable[[bytes], bytes], step: int
) -> None:
    packed = pack(TEXT)
    unpacking = unpacker(coding)
    assert unpacking is not None
    pieces = [
        piece
        for start in range(0, len(packed), step)
        for piece in unpacking.pieces(packed[start : start + step])
    ]
    unpacking.end()
    assert b"".join(pieces) == TEXT


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress, bare_deflate])
@pytest.mark.parametrize("size", [2**18 - 1, 2**18, 2**18 + 1, 2**20, 2**20 + 300])
def test_no_piece_is_longer_than_its_bound_and_none_is_lost(
    pack: Callable[[bytes], bytes], size: int
) -> None:
    unpacking = unpacker("gzip" if pack is gzip.compress else "deflate")
    assert unpacking is not None
    lengths = [len(piece) for piece in unpacking.pieces(pack(bytes(size)))]
    unpacking.end()
    assert sum(lengths) == size
    assert max(lengths) <= 256 * 1024


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress, bare_deflate])
def test_a_body_that_ends_too_soon_is_noticed(pack: Callable[[bytes], bytes]) -> None:
    unpacking = unpacker("gzip" if pack is gzip.compress else "deflate")
    assert unpacking is not None
    list(unpacking.pieces(pack(TEXT)[:-1]))
    with pytest.raises(BodyCorrupt):
        unpacking.end()


def test_a_body_of_nothing_but_members_is_looked_at_in_proportion_to_its_length(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fed = 0

    class Counting:
        def __init__(self, window_bits: int) -> None:
            self._stream = zlib.decompressobj(window_bits)

        def decompress(self, data: bytes, bytes_max: int) -> bytes:
            nonlocal fed
            fed += len(data)
            return self._stream.decompress(data, bytes_max)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._stream, name)

    def looked_at(body: bytes) -> int:
        nonlocal fed
        fed = 0
        unpacking = Gzip(strict=True)
        assert list(unpacking.pieces(body)) == []
        unpacking.end()
        return fed

    once = gzip.compress(b"") * 5_000
    counting = SimpleNamespace(**{**vars(zlib), "decompressobj": Counting})
    monkeypatch.setattr(compression, "zlib", counting)
    assert looked_at(once * 4) < 5 * looked_at(once)


async def test_others_have_their_turn_while_an_answer_is_compressed() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    closed = False

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal closed
        try:
            for _ in range(20):
                yield TEXT
        finally:
            closed = True

    running = asyncio.create_task(other())
    made = b"".join([piece async for piece in gzipped_pieces(pieces())])
    running.cancel()
    assert gzip.decompress(made) == TEXT * 20
    assert turns >= 20
    assert closed


async def test_who_leaves_in_the_middle_closes_what_was_being_compressed() -> None:
    closed = False

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal closed
        try:
            while True:
                yield TEXT
        finally:
            closed = True

    source = pieces()
    making = gzipped_pieces(source)
    assert isinstance(making, AsyncGenerator)
    await anext(making)
    await making.aclose()
    assert closed
