"""Rows of a run's tasks in PostgreSQL's binary COPY format, a chunk at a time.

What all tasks of a run have in common is encoded once.
"""

from __future__ import annotations

import asyncio
import hashlib
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from coatcheck.core.queries import copy_format
from coatcheck.core.queries.copy_format import END, NULL, SIGNATURE
from coatcheck.domain.ids import to_text
from coatcheck.domain.limits import RUN_TASKS_MAX
from coatcheck.domain.runs import run_queue_key
from coatcheck.products.batches.model import BadLine, IngestOrder

COLUMNS: Final = (
    "org_id",
    "id",
    "lane",
    "endpoint",
    "flow",
    "failures_max",
    "owner",
    "request_id",
    "run_id",
    "webhook",
    "custom_id",
    "task_index",
    "payload",
)
TELLS_FAILURES: Final = 3
"""What ``jobs.webhook`` says of a task whose failure is sent to its run's webhook."""

_ID_LENGTH: Final = struct.pack(">i", 16)
_index_and_length: Final = struct.Struct(">iii").pack
_unnamed: Final = struct.Struct(">iiii").pack
_BUCKETS: Final = 256
_KEYS_MAX: Final = 10_000
"""Keys whose queue keys are remembered as they are encoded."""


class TaskBlock(NamedTuple):
    """Tasks out of some lines of a list. ``keys`` is None where their run has no rate by key."""

    inputs: Sequence[bytes]
    custom_ids: Sequence[str | None]
    keys: Sequence[str] | None
    bad: Sequence[BadLine]
    lines: int
    size: int
    """What the lines take up in the list."""


@dataclass(slots=True)
class TaskChunk:
    """Tasks as a COPY stream, and what they were read from. ``first`` is the first one's number."""

    first: int
    tasks: int = 0
    lines: int = 0
    size: int = 0
    bad: list[BadLine] = field(default_factory=list)
    pieces: list[bytes] = field(default_factory=list)


class TooManyTasks(Exception):
    """A run has no room for so many."""


async def encode(order: IngestOrder, first: int, blocks: Iterable[TaskBlock]) -> TaskChunk:
    """The tasks of some blocks, numbered from ``first`` on. Raises TooManyTasks.

    Not in their order, but roughly in that of their ids, which are as good as random: rows that
    land on one page of an index follow each other, and the server has half the work. Others have a
    turn after each block.
    """
    before, between = _common(order)
    prefix, suffix = order.payload_prefix, order.payload_suffix
    frame = len(prefix) + len(suffix)
    sha256 = hashlib.sha256
    id_text = f"{to_text(order.run)}:".encode()
    encoded: dict[str, bytes] = {}
    plain = between(run_queue_key(order.run))
    buckets: list[list[bytes]] = [[] for _ in range(_BUCKETS)]
    chunk = TaskChunk(first)
    index = first
    for block in blocks:
        chunk.lines += block.lines
        chunk.size += block.size
        chunk.bad += block.bad
        chunk.tasks += len(block.inputs)
        if first + chunk.tasks > RUN_TASKS_MAX:
            raise TooManyTasks
        keys = block.keys
        for at, (given, custom_id) in enumerate(zip(block.inputs, block.custom_ids, strict=True)):
            # Written out, not called: this loop is most of what taking a list in costs.
            common = plain
            if keys is not None:
                key = keys[at]
                try:
                    common = encoded[key]
                except KeyError:
                    if len(encoded) >= _KEYS_MAX:
                        encoded.clear()
                    common = encoded[key] = between(run_queue_key(order.run, key))
            payload_size = len(given) + frame
            task = sha256(id_text + b"%d" % index).digest()
            buckets[task[0]] += (
                before,
                task[:16],
                common,
                _unnamed(-1, 4, index, payload_size)
                if custom_id is None
                else copy_format.field(custom_id.encode())
                + _index_and_length(4, index, payload_size),
                prefix,
                given,
                suffix,
            )
            index += 1
        await asyncio.sleep(0)
    chunk.pieces = [SIGNATURE, *(b"".join(bucket) for bucket in buckets if bucket), END]
    return chunk


def _common(order: IngestOrder) -> tuple[bytes, Callable[[str], bytes]]:
    """What stands before the id in every row, and between the id and the custom id by queue key."""
    before = struct.pack(">h", len(COLUMNS)) + _text(order.org) + _ID_LENGTH
    first = _text(order.lane) + _text(order.endpoint)
    last = b"".join(
        [
            copy_format.field(struct.pack(">h", order.failures_max)),
            _text(order.owner),
            NULL if order.request_id is None else _text(order.request_id),
            copy_format.field(order.run.bytes),
            copy_format.field(struct.pack(">h", TELLS_FAILURES)) if order.tells_failures else NULL,
        ]
    )

    def between(queue_key: str) -> bytes:
        return first + _text(queue_key) + last

    return before, between


def _text(value: str) -> bytes:
    return copy_format.field(value.encode())
