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
from datetime import datetime
from typing import Final
from uuid import UUID

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]
_VALUES = {letter: value for value, letter in enumerate(_ALPHABET)}
_TEXT_LENGTH = 26
_TIME_BYTES = 6
_RANDOM_BYTES = 10
_RANDOM_BITS = 8 * _RANDOM_BYTES
_SUPPLY_IDS = 256
_CLOCKS_DIFFER_BY = 86_400_000
_supply: list[bytes] = []
os.register_at_fork(after_in_child=_supply.clear)  # or parent and child would create the same ids
_SHIFTS = tuple(range(120, -1, -10))


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
    pairs = _PAIRS
    return "".join([pairs[(number >> shift) & 1023] for shift in _SHIFTS])


def from_text(text: str) -> UUID:
    """Parse a ULID. Accepts lower case and the look-alikes I, L and O."""
    if len(text) != _TEXT_LENGTH:
        raise InvalidId(f"a job id must have {_TEXT_LENGTH} characters, not {len(text)}")
    number = 0
    for letter in text.upper().translate(_LOOK_ALIKES):
        value = _VALUES.get(letter)
        if value is None:
            raise InvalidId("a job id may only contain Crockford's base 32 characters")
        number = number << 5 | value
    if number >> 128:
        raise InvalidId("a job id must begin with 0 to 7")
    return UUID(int=number)


_LOOK_ALIKES = str.maketrans("ILO", "110")


_RUN_QUEUE_KEY: Final = re.compile(r"([0-9a-f]{32})(/.*)?", re.DOTALL)


def run_queue_key(run: UUID, key: str = "") -> str:
    """The queue key of a run's jobs, or of those that share a key."""
    return f"{run.hex}/{key}" if key else run.hex


def run_label(queue_key: str) -> str | None:
    """What people call a run's queue: the run by its id, and the key; None for any other queue."""
    run = _RUN_QUEUE_KEY.fullmatch(queue_key)
    return None if run is None else f"run {to_text(UUID(run[1]))}{run[2] or ''}"
