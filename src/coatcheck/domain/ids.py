"""Job ids: 128 bits, sortable by time of creation, shown as a 26-character ULID.

The database stores them as ``uuid`` (16 bytes). A deterministic id of another making, such as a
batch task's 128 bits of SHA-256, fits the same column; only its spelling differs.
"""

from __future__ import annotations

import os
import time
from uuid import UUID

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]
_VALUES = {letter: value for value, letter in enumerate(_ALPHABET)}
_TEXT_LENGTH = 26
_RANDOM_BITS = 80
_SHIFTS = tuple(range(120, -1, -10))


class InvalidId(ValueError):
    """The text is not a ULID."""


def new_id() -> UUID:
    """A fresh id. Between machines its order is as good as their clocks; nothing relies on it."""
    milliseconds = time.time_ns() // 1_000_000
    return UUID(int=(milliseconds << _RANDOM_BITS) | int.from_bytes(os.urandom(10)))


def new_ids(count: int) -> list[UUID]:
    """``count`` fresh ids of one millisecond, ascending, for one call to the random source."""
    base = (time.time_ns() // 1_000_000) << _RANDOM_BITS
    noise = os.urandom(10 * count)
    from_bytes = int.from_bytes
    numbers = [base | from_bytes(noise[at : at + 10]) for at in range(0, 10 * count, 10)]
    numbers.sort()
    return [UUID(int=number) for number in numbers]


def to_text(job_id: UUID) -> str:
    """The ULID spelling of an id."""
    number = job_id.int
    pairs = _PAIRS
    return "".join([pairs[(number >> shift) & 1023] for shift in _SHIFTS])


def from_text(text: str) -> UUID:
    """The id that a ULID spells. Lower case and the look-alikes I, L and O are accepted."""
    if len(text) != _TEXT_LENGTH:
        raise InvalidId(f"a job id has {_TEXT_LENGTH} characters, not {len(text)}")
    number = 0
    for letter in text.upper().translate(_LOOK_ALIKES):
        value = _VALUES.get(letter)
        if value is None:
            raise InvalidId("a job id has only the digits and letters of Crockford's base 32")
        number = number << 5 | value
    if number >> 128:
        raise InvalidId("a job id begins with 0 to 7")
    return UUID(int=number)


_LOOK_ALIKES = str.maketrans("ILO", "110")
