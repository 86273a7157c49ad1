"""Mutations of valid bytes: flips, cuts, splices and overwrites."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from typing import Final

_NUMBERS: Final = [0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF]
_PIECE_BYTES_MAX: Final = 64
_ROUNDS_MAX: Final = 4
_GENTLE: Final = 0.4

Mutation = Callable[[random.Random, bytes, bytes], bytes]


def mutated(
    rng: random.Random, data: bytes, others: Sequence[bytes], words: Sequence[bytes] = ()
) -> bytes:
    """``data`` with one or a few mutations. ``others`` are spliced in, ``words`` inserted."""
    if rng.random() < _GENTLE:
        return _flip_bit(rng, data, b"")  # nearly valid data gets furthest
    for _ in range(rng.randint(1, _ROUNDS_MAX)):
        if words and rng.random() < 0.3:
            data = _insert(data, rng.randrange(len(data) + 1), rng.choice(words))
        else:
            data = rng.choice(_MUTATIONS)(rng, data, rng.choice(others))
    return data


def _insert(data: bytes, at: int, piece: bytes) -> bytes:
    return data[:at] + piece + data[at:]


def _flip_bit(rng: random.Random, data: bytes, other: bytes) -> bytes:
    if not data:
        return data
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def _overwrite_number(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """A wrong length, offset or count."""
    form = rng.choice(["<B", "<H", "<I", ">H", ">I"])
    size = struct.calcsize(form)
    number = rng.choice(_NUMBERS) & (1 << 8 * size) - 1
    at = rng.randrange(max(1, len(data) - size))
    return data[:at] + struct.pack(form, number) + data[at + size :]


def _overwrite_noise(rng: random.Random, data: bytes, other: bytes) -> bytes:
    piece = rng.randbytes(rng.randint(1, _PIECE_BYTES_MAX))
    at = rng.randrange(len(data) + 1)
    return data[:at] + piece + data[at + len(piece) :]


def _insert_noise(rng: random.Random, data: bytes, other: bytes) -> bytes:
    piece = rng.randbytes(rng.randint(1, _PIECE_BYTES_MAX))
    return _insert(data, rng.randrange(len(data) + 1), piece)


def _remove(rng: random.Random, data: bytes, other: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + data[at + rng.randint(1, _PIECE_BYTES_MAX) :]


def _repeat(rng: random.Random, data: bytes, other: bytes) -> bytes:
    start = rng.randrange(len(data) + 1)
    piece = data[start : start + rng.randint(1, 4 * _PIECE_BYTES_MAX)]
    return _insert(data, rng.randrange(len(data) + 1), piece * rng.randint(1, 8))


def _truncate(rng: random.Random, data: bytes, other: bytes) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _behead(rng: random.Random, data: bytes, other: bytes) -> bytes:
    return data[rng.randrange(len(data) + 1) :]


def _splice(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """The beginning of one and the end of another."""
    return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]


def _embed(rng: random.Random, data: bytes, other: bytes) -> bytes:
    return _insert(data, rng.randrange(len(data) + 1), other)


_MUTATIONS: Final[Sequence[Mutation]] = (
    _flip_bit,
    _flip_bit,
    _overwrite_number,
    _overwrite_number,
    _overwrite_noise,
    _insert_noise,
    _remove,
    _repeat,
    _truncate,
    _behead,
    _splice,
    _embed,
)
