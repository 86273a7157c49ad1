"""Rows of the queue for jobs that are written by COPY.

Every other statement that queues jobs includes ``queue/add``, which writes the same rows.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from coatcheck.db.connection import RawConnection

SIGNATURE: Final = b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0)
END: Final = struct.pack(">h", -1)
_COLUMNS: Final = ("org_id", "lane", "endpoint", "flow", "id", "ids")
_ROW_JOBS_MAX: Final = 64
_UUID_TYPE: Final = 2950
_ID_LENGTH: Final = struct.pack(">i", 16)
_length: Final = struct.Struct(">i").pack
_ids_head: Final = struct.Struct(">iiiiii").pack


class QueueName(NamedTuple):
    """A queue of an endpoint in a lane."""

    org: str
    lane: str
    endpoint: str
    queue_key: str


async def copy(connection: RawConnection, queued: Mapping[QueueName, Sequence[bytes]]) -> None:
    """Queue jobs that this transaction has written: the ids of each queue, in order."""
    await connection.copy_to_table(
        "queue", source=_encoded(queued), columns=_COLUMNS, format="binary"
    )


async def _encoded(queued: Mapping[QueueName, Sequence[bytes]]) -> AsyncIterator[bytes]:
    yield SIGNATURE
    for queue, ids in queued.items():
        yield b"".join(_rows(queue, ids))
    yield END


def _rows(queue: QueueName, ids: Sequence[bytes]) -> Iterable[bytes]:
    names = b"".join(copy_field(name.encode()) for name in queue)
    before = struct.pack(">h", len(_COLUMNS)) + names + _ID_LENGTH
    for start in range(0, len(ids), _ROW_JOBS_MAX):
        row = ids[start : start + _ROW_JOBS_MAX]
        yield before
        yield row[-1]
        yield _ids_head(20 + 20 * len(row), 1, 0, _UUID_TYPE, len(row), 1)
        yield _ID_LENGTH + _ID_LENGTH.join(row)


def copy_field(data: bytes) -> bytes:
    """A value of a row, prefixed with its length."""
    return _length(len(data)) + data
