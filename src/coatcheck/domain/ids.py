"""Job ids: 128 bits, sortable by time of creation, shown as a 26-character ULID.

The database stores them as ``uuid`` (16 bytes). Deterministic ids, such as a batch task's 128 bits
of SHA-256, fit the same column.

Runs are groups of jobs that share a queue.
The queue key of a run's jobs (the column ``flow``) is the run's id in hex. Jobs of a run that are
limited together have a slash and their key after it.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Final
from uuid import UUID

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]
_PYTHONS_ALPHABET = "0123456789abcdefghijklmnopqrstuv"
_TEXT_LENGTH = 26
_TIME_BYTES = 6
_RANDOM_BYTES = 10
_RANDOM_BITS = 8 * _RANDOM_BYTES
_SUPPLY_IDS = 256
_CLOCKS_DIFFER_BY = 86_400_000
_supply: list[bytes] = []
os.register_at_fork(after_in_child=_supply.clear)  # or parent and child would create the same ids


class InvalidId(ValueError):
    """The text is not a ULID."""


def new_id() -> UUID:
    """A new id. Its order between machines depends on their clocks; nothing relies on it."""
    milliseconds = time.time_ns() // 1_000_000
    return UUID(int=(milliseconds << _RANDOM_BITS) | int.from_bytes(_noise()))


def newest_possible() -> UUID:
    """An id after every job's so far, however much the machines' clocks differ."""
    return UUID(int=(time.time_ns() // 1_000_000 + _CLOCKS_DIFFER_BY) << _RANDOM_BITS)


def at_moment(moment: datetime) -> UUID:
    """The smallest id created at a moment, by a correct clock."""
    milliseconds = max(0, int(moment.timestamp() * 1_000))
    return UUID(int=milliseconds << _RANDOM_BITS)


def _noise() -> bytes:
    """Random bytes for one id, from a supply that is filled with one system call for many."""
    try:
        return _supply.pop()
    except IndexError:  # not checked beforehand: threads share the supply
        noise = os.urandom(_RANDOM_BYTES * _SUPPLY_IDS)
        starts = range(_RANDOM_BYTES, len(noise), _RANDOM_BYTES)
        _supply.extend([noise[start : start + _RANDOM_BYTES] for start in starts])
        return noise[:_RANDOM_BYTES]


def new_ids(count: int) -> list[bytes]:
    """``count`` new ids of one millisecond, ascending, with one call to the random source.

    As bytes: ten thousand UUID objects cost more than everything else about their jobs.
    """
    milliseconds = time.time_ns() // 1_000_000
    time_part = milliseconds.to_bytes(_TIME_BYTES)
    noise = os.urandom(_RANDOM_BYTES * count)
    starts = range(0, _RANDOM_BYTES * count, _RANDOM_BYTES)
    return sorted([time_part + noise[start : start + _RANDOM_BYTES] for start in starts])


def to_text(job_id: UUID) -> str:
    """An id as a ULID."""
    number = job_id.int
    high, low = number >> 70, number & _LOW_70
    pairs = _PAIRS
    return (
        f"{pairs[high >> 50]}{pairs[high >> 40 & 1023]}{pairs[high >> 30 & 1023]}"
        f"{pairs[high >> 20 & 1023]}{pairs[high >> 10 & 1023]}{pairs[high & 1023]}"
        f"{pairs[low >> 60]}{pairs[low >> 50 & 1023]}{pairs[low >> 40 & 1023]}"
        f"{pairs[low >> 30 & 1023]}{pairs[low >> 20 & 1023]}{pairs[low >> 10 & 1023]}"
        f"{pairs[low & 1023]}"
    )


def to_texts(job_ids: Sequence[UUID]) -> list[str]:
    """Ids as ULIDs, for less than half the cost of ``to_text`` each if there are many.

    The ids become one number, with 32 bytes for each id. Every step moves the bits of all of them
    apart, first in halves of 80, at last of 5 bits. Then each byte has the value of a character.
    """
    texts: list[str] = []
    for start in range(0, len(job_ids), _IDS_AT_ONCE):
        some = job_ids[start : start + _IDS_AT_ONCE]
        number = int.from_bytes(_GAP.join([b"", *[each.bytes for each in some]]))
        for lower, upper, shift in _spread():
            number = number & lower | (number & upper) << shift
        length = _LANE_BYTES * len(some)
        letters = number.to_bytes(length).translate(_LETTERS).decode("ascii")
        first = _LANE_BYTES - _TEXT_LENGTH
        texts += [letters[at : at + _TEXT_LENGTH] for at in range(first, length, _LANE_BYTES)]
    return texts


@cache
def _spread() -> list[tuple[int, int, int]]:
    """The steps of ``to_texts``: the bits that stay, the ones that move, and by how much."""
    lane = 8 * _LANE_BYTES
    all_bits = (1 << lane * _IDS_AT_ONCE) - 1
    steps = []
    for half in (80, 40, 20, 10, 5):
        room = lane * half // 160  # for each half
        # The lowest bit of every pair of halves, times a half full of ones.
        lower = all_bits // ((1 << 2 * room) - 1) * ((1 << half) - 1)
        steps.append((lower, lower << half, room - half))
    return steps


_LOW_70: Final = (1 << 70) - 1
_IDS_AT_ONCE: Final = 128
_LANE_BYTES: Final = 32
_GAP: Final = bytes(_LANE_BYTES - 16)
_LETTERS: Final = bytes.maketrans(bytes(range(32)), _ALPHABET.encode())


def from_text(text: str) -> UUID:
    """Parse a ULID. Accepts lower case and the look-alikes I, L and O."""
    if len(text) != _TEXT_LENGTH:
        raise InvalidId(f"a job id must have {_TEXT_LENGTH} characters, not {len(text)}")
    if _CROCKFORD.fullmatch(text) is None:
        raise InvalidId("a job id may only contain Crockford's base 32 characters")
    number = int(text.translate(_AS_PYTHON), 32)
    if number >> 128:
        raise InvalidId("a job id must begin with 0 to 7")
    return UUID(int=number)


_CROCKFORD: Final = re.compile(f"[{_ALPHABET}ILO]*", re.ASCII | re.IGNORECASE)
_AS_PYTHON: Final = str.maketrans(
    f"{_ALPHABET}{_ALPHABET.lower()}ILOilo", f"{2 * _PYTHONS_ALPHABET}110110"
)
"""From Crockford's characters to those of ``int``, which is much faster than a loop over them."""


_RUN_QUEUE_KEY: Final = re.compile(r"([0-9a-f]{32})(/.*)?", re.DOTALL)


def run_queue_key(run: UUID, key: str = "") -> str:
    """The queue key of a run's jobs, or of those that share a key."""
    return f"{run.hex}/{key}" if key else run.hex


def run_label(queue_key: str) -> str | None:
    """What people call a run's queue: the run by its id, and the key; None for any other queue."""
    run = _RUN_QUEUE_KEY.fullmatch(queue_key)
    return None if run is None else f"run {to_text(UUID(run[1]))}{run[2] or ''}"
