"""Rows of new jobs in PostgreSQL's binary COPY format, in pieces small enough to overlap.

The driver can encode rows itself, but hands them on half a megabyte at a time: the server waits
while a piece is made, and we wait while it is taken in. Pieces of 64 KiB keep both at work
(docs/adr/0010). What a run of jobs has in common is encoded once.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Iterable
from functools import lru_cache
from typing import Final

from coatcheck.domain.job import NewJob

COLUMNS: Final = (
    "org_id",
    "id",
    "lane",
    "endpoint",
    "flow",
    "failures_max",
    "payload",
    "request_id",
)

_SIGNATURE: Final = b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0)
_END: Final = struct.pack(">h", -1)
_NULL: Final = struct.pack(">i", -1)
_PIECE_BYTES: Final = 64 * 1024
_length: Final = struct.Struct(">i").pack


async def encoded(jobs: Iterable[NewJob]) -> AsyncIterator[bytes]:
    """The jobs as a COPY stream."""
    piece = [_SIGNATURE]
    size = 0
    for job in jobs:
        before, between = _common(job.org, job.lane, job.endpoint, job.flow, job.failures_max)
        payload = job.payload
        piece += (
            before,
            job.uuid.bytes,
            between,
            _length(len(payload)),
            payload,
            _NULL if job.request_id is None else _field(job.request_id.encode()),
        )
        size += len(payload) + len(before) + len(between)
        if size >= _PIECE_BYTES:
            yield b"".join(piece)
            piece = []
            size = 0
    piece.append(_END)
    yield b"".join(piece)


@lru_cache(maxsize=1024)
def _common(
    org: str, lane: str, endpoint: str, flow: str, failures_max: int
) -> tuple[bytes, bytes]:
    """What stands before and after the id in every row of a kind."""
    before = struct.pack(">h", len(COLUMNS)) + _field(org.encode()) + _length(16)
    between = b"".join(
        [
            _field(lane.encode()),
            _field(endpoint.encode()),
            _field(flow.encode()),
            _field(struct.pack(">h", failures_max)),
        ]
    )
    return before, between


def _field(data: bytes) -> bytes:
    return _length(len(data)) + data
