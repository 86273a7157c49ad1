"""WAV files are read in any pieces, and what is none is told."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coatcheck.products.speech.wav import NotWav, WavReader, WavRejected

PCM, FLOAT, MP3, EXTENSIBLE = 1, 3, 0x55, 0xFFFE
RATE = 8_000


def chunk(name: bytes, data: bytes, size: int | None = None) -> bytes:
    length = len(data) if size is None else size
    return name + struct.pack("<I", length) + data + b"\0" * (len(data) % 2)


def form(coding: int = PCM, frame: int = 2, rate: int = RATE, more: bytes = b"") -> bytes:
    body = struct.pack("<HHIIHH", coding, 1, rate, rate * frame, frame, 16) + more
    return chunk(b"fmt ", body)


def file(*chunks: bytes, riff: bytes = b"RIFF", kind: bytes = b"WAVE") -> bytes:
    body = kind + b"".join(chunks)
    return riff + struct.pack("<I", len(body)) + body


def heard(data: bytes, piece: int = 1 << 20) -> float:
    reader = WavReader()
    for at in range(0, len(data), piece):
        reader.feed(data[at : at + piece])
    return reader.duration()


SECOND = bytes(2 * RATE)
GOOD = {
    "plain": file(form(), chunk(b"data", SECOND)),
    "with odd chunks before and after": file(
        chunk(b"LIST", b"odd"), form(), chunk(b"bext", b"x" * 601), chunk(b"data", SECOND),
        chunk(b"LIST", b"after"),
    ),
    "of unknown length": file(form(), chunk(b"data", SECOND, 0xFFFF_FFFF)),
    "of length nought": file(form(), chunk(b"data", SECOND, 0)),
    "long": file(form(), chunk(b"data", SECOND, 0xFFFF_FFFF), riff=b"RF64"),
    "float": file(form(FLOAT), chunk(b"data", SECOND)),
    "extensible": file(
        form(EXTENSIBLE, more=struct.pack("<HHIH14x", 22, 16, 4, PCM)), chunk(b"data", SECOND)
    ),
    "cut within a frame": file(form(), chunk(b"data", SECOND))[:-1] + b"",
}  # fmt: skip


@pytest.mark.parametrize("data", GOOD.values(), ids=GOOD)
@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_a_second_is_a_second(data: bytes, piece: int) -> None:
    assert heard(data, piece) == pytest.approx(1.0, abs=2 / RATE)


BAD: dict[str, tuple[bytes, type[ValueError]]] = {
    "nothing": (b"", NotWav),
    "an mp3": (b"ID3\x04\0\0", NotWav),
    "an avi": (file(form(), kind=b"AVI "), NotWav),
    "its first bytes": (b"RIF", NotWav),
    "a head alone": (file(), WavRejected),
    "silent": (file(form()), WavRejected),
    "compressed": (file(form(MP3), chunk(b"data", SECOND)), WavRejected),
    "sound before its form": (file(chunk(b"data", SECOND), form()), WavRejected),
    "timeless": (file(form(rate=0), chunk(b"data", SECOND)), WavRejected),
    "a form of no size": (file(chunk(b"fmt ", b"\1\0")), WavRejected),
    "a form of any size": (file(chunk(b"fmt ", b"", 1 << 30)), WavRejected),
}


@pytest.mark.parametrize(("data", "why"), BAD.values(), ids=BAD)
@pytest.mark.parametrize("piece", [1, 1 << 20])
def test_what_is_no_use_is_told(data: bytes, why: type[ValueError], piece: int) -> None:
    with pytest.raises(why):
        heard(data, piece)


def outcome(data: bytes, piece: int) -> object:
    try:
        return heard(data, piece)
    except (NotWav, WavRejected) as error:
        return type(error)


@given(st.binary(max_size=200), st.integers(min_value=1, max_value=50))
def test_pieces_make_no_difference_to_any_bytes(tail: bytes, piece: int) -> None:
    for head in (b"", b"RIFF\0\0\0\0WAVE", GOOD["plain"][:40]):
        assert outcome(head + tail, piece) == outcome(head + tail, 1 << 20)
