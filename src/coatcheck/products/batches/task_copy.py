"""Encodes the rows of a run's tasks in PostgreSQL's binary COPY format, a chunk at a time.

The columns that all tasks of a run share are encoded once.
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
from coatcheck.domain.ids import run_queue_key, to_text
from coatcheck.domain.limits import RUN_TASKS_MAX
from coatcheck.products.batches.model import BadLine, IngestSnapshot

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
NOTIFIES_FAILURES: Final = 3
"""The value of ``jobs.webhook`` for a task whose failure is sent to its run's webhook."""

_ID_LENGTH: Final = struct.pack(">i", 16)
_index_and_length: Final = struct.Struct(">iii").pack
_unnamed: Final = struct.Struct(">iiii").pack
_BUCKETS: Final = 256
_KEYS_MAX: Final = 10_000
"""How many encoded queue keys are cached."""


class TaskBlock(NamedTuple):
    """Tasks of some lines of a list. ``keys`` is None if the run has no rate per key."""

    inputs: Sequence[bytes]
    custom_ids: Sequence[str | None]
    keys: Sequence[str] | None
    bad: Sequence[BadLine]
    lines: int
    size: int
    """The bytes of the lines in the list."""


@dataclass(slots=True)
class TaskChunk:
    """Tasks as a COPY stream, and the lines of them. ``first`` is the first task's number."""

    first: int
    tasks: int = 0
    lines: int = 0
    size: int = 0
    bad: list[BadLine] = field(default_factory=list)
    pieces: list[bytes] = field(default_factory=list)


class TooManyTasks(Exception):
    """The run would have more than RUN_TASKS_MAX tasks."""


async def encode(snapshot: IngestSnapshot, first: int, blocks: Iterable[TaskBlock]) -> TaskChunk:
    """Encode the tasks of some blocks, numbered from ``first``. Raises TooManyTasks.

    The rows are not in the order of their numbers, but roughly in that of their ids, which are
    practically random: rows that belong on the same page of an index follow each other, which
    halves the server's work. Other coroutines get a turn after each block.
    """
    before, between = _common(snapshot)
    prefix, suffix = snapshot.payload_prefix, snapshot.payload_suffix
    frame = len(prefix) + len(suffix)
    sha256 = hashlib.sha256
    id_text = f"{to_text(snapshot.run)}:".encode()
    encoded: dict[str, bytes] = {}
    plain = between(run_queue_key(snapshot.run))
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
            # Inlined on purpose: this loop is most of the cost of an ingest.
            common = plain
            if keys is not None:
                key = keys[at]
                try:
                    common = encoded[key]
                except KeyError:
                    if len(encoded) >= _KEYS_MAX:
                        encoded.clear()
                    common = encoded[key] = between(run_queue_key(snapshot.run, key))
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


def _common(snapshot: IngestSnapshot) -> tuple[bytes, Callable[[str], bytes]]:
    """The bytes before the id, the same in every row, and a function that gives the bytes between
    the id and the custom id for a queue key."""
    before = struct.pack(">h", len(COLUMNS)) + _text(snapshot.org) + _ID_LENGTH
    first = _text(snapshot.lane) + _text(snapshot.endpoint)
    last = b"".join(
        [
            copy_format.field(struct.pack(">h", snapshot.failures_max)),
            _text(snapshot.owner),
            NULL if snapshot.request_id is None else _text(snapshot.request_id),
            copy_format.field(snapshot.run.bytes),
            copy_format.field(struct.pack(">h", NOTIFIES_FAILURES))
            if snapshot.notifies_failures
            else NULL,
        ]
    )

    def between(queue_key: str) -> bytes:
        return first + _text(queue_key) + last

    return before, between


def _text(value: str) -> bytes:
    return copy_format.field(value.encode())
