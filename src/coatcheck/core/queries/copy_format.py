"""Rows of new jobs in PostgreSQL's binary COPY format, in pieces small enough to overlap.

The driver can encode rows itself, but sends them half a megabyte at a time: the server waits while
a piece is made, and we wait while the server reads it. Pieces of 64 KiB keep both at work
(docs/adr/0010). The columns that a run of jobs has in common are encoded once.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final

from coatcheck.domain.job import JobKind, PlainJob

COLUMNS: Final = (
    "org_id",
    "id",
    "lane",
    "endpoint",
    "flow",
    "failures_max",
    "owner",
    "payload",
    "request_id",
)

SIGNATURE: Final = b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0)
END: Final = struct.pack(">h", -1)
NULL: Final = struct.pack(">i", -1)
PIECE_BYTES: Final = 64 * 1024
_ROW_BYTES: Final = 100
"""The approximate size of a row without its payload."""
_length: Final = struct.Struct(">i").pack


async def encoded(
    jobs: Iterable[PlainJob], ids: Sequence[bytes], created: Counter[JobKind]
) -> AsyncIterator[bytes]:
    """Jobs with these ids as a COPY stream. ``created`` counts them by kind."""
    created.clear()
    piece = [SIGNATURE]
    size = 0
    kind_before: JobKind | None = None
    run = 0
    before = between = b""
    for (kind, payload, request_id), job_id in zip(jobs, ids, strict=True):
        if kind is not kind_before:
            if kind_before is not None:
                created[kind_before] += run
            before, between = _common(kind)
            kind_before = kind
            run = 0
        run += 1
        payload_size = len(payload)
        piece += (
            before,
            job_id,
            between,
            _length(payload_size),
            payload,
            NULL if request_id is None else field(request_id.encode()),
        )
        size += payload_size + _ROW_BYTES
        if size >= PIECE_BYTES:
            yield b"".join(piece)
            piece = []
            size = 0
    if kind_before is not None:
        created[kind_before] += run
    piece.append(END)
    yield b"".join(piece)


def _common(kind: JobKind) -> tuple[bytes, bytes]:
    """The bytes before and after the id in every row of a kind."""
    before = struct.pack(">h", len(COLUMNS)) + field(kind.org.encode()) + _length(16)
    between = b"".join(
        [
            field(kind.lane.encode()),
            field(kind.endpoint.encode()),
            field(kind.queue_key.encode()),
            field(struct.pack(">h", kind.failures_max)),
            field(kind.owner.encode()),
        ]
    )
    return before, between


def field(data: bytes) -> bytes:
    """A value, prefixed with its length."""
    return _length(len(data)) + data
