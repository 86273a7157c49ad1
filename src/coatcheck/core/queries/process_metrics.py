"""What processes say about themselves. One method a file of ``sql/process_metrics``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import UUID

from coatcheck.core.sql import sql
from coatcheck.db.connection import Connection, RawConnection


@dataclass(frozen=True, slots=True)
class ProcessReport:
    """What a process said last. ``alive``: it may still be true of the present."""

    process: UUID
    samples: bytes
    alive: bool


async def begin(db: Connection, process: UUID, kind: str, push: int, samples: bytes) -> None:
    """The first push of a process."""
    await db.fetch(sql("process_metrics/begin"), process, kind, push, samples)


async def push(db: Connection, process: UUID, push: int, samples: bytes, *, ended: bool) -> bool:
    """A later push. False if the process was folded, and is to begin anew."""
    return bool(await db.fetch(sql("process_metrics/push"), process, push, samples, ended))


async def folded_push(db: Connection, process: UUID) -> int | None:
    """Which push of a folded process was counted; None if nobody knows any more."""
    rows = await db.fetch(sql("process_metrics/folded_push"), process)
    return rows[0]["push"] if rows else None


async def read(db: Connection, silent_seconds: float) -> list[ProcessReport]:
    """What all have said, those that are gone as one."""
    rows = await db.fetch(sql("process_metrics/read"), silent_seconds)
    return [ProcessReport(row["process"], row["samples"], row["alive"]) for row in rows]


async def fold(
    db: Connection,
    add: Callable[[bytes, Mapping[UUID, bytes]], bytes],
    *,
    silent_seconds: float,
    remember_seconds: float,
    rows_max: int,
) -> int:
    """Count processes that have ended among those that are gone. How many there were.

    ``add`` adds what they counted to what those had.
    """

    async def lock_and_fold(connection: RawConnection) -> int:
        async with connection.transaction():
            gone: bytes = await connection.fetchval(sql("process_metrics/lock_gone"))
            rows = await connection.fetch(
                sql("process_metrics/lock_ended"), silent_seconds, rows_max
            )
            ended = {row["process"]: row["samples"] for row in rows}
            if ended:
                whole = add(gone, ended)
                await connection.fetch(
                    sql("process_metrics/fold"), whole, list(ended), remember_seconds
                )
            return len(ended)

    return await db.run(lock_and_fold)
