"""Content codings are undone in bounded pieces, however the bytes come."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable

import pytest

from coatcheck.compression import BodyCorrupt, unpacker
from tests.surfaces.scrape.packing import PACKED, TEXT, bare_deflate


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
