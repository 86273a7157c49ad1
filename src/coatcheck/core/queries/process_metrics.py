"""Queries about the metrics that processes push."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import UUID

from coatcheck.core.queries import sql
from coatcheck.db.connection import Connection, RawConnection


@dataclass(frozen=True, slots=True)
class ProcessReport:
    """A process's last push. ``alive``: its gauges may still be true."""

    process: UUID
    samples: bytes
    alive: bool


async def begin(db: Connection, process: UUID, kind: str, push: int, samples: bytes) -> None:
    """The first push of a process."""
    await sql.fetch(
        db, "process_metrics/begin", process=process, kind=kind, push=push, samples=samples
    )


async def push(db: Connection, process: UUID, push: int, samples: bytes, *, ended: bool) -> bool:
    """A later push. Returns False if the process was folded and has to begin anew."""
    return bool(
        await sql.fetch(
            db, "process_metrics/push", process=process, push=push, samples=samples, ended=ended
        )
    )


async def folded_push(db: Connection, process: UUID) -> int | None:
    """The last counted push of a folded process; None if it is no longer known."""
    rows = await sql.fetch(db, "process_metrics/folded_push", process=process)
    return rows[0]["push"] if rows else None


async def read(db: Connection, silent_seconds: float) -> list[ProcessReport]:
    """The last push of every process; ended ones as one sum."""
    rows = await sql.fetch(db, "process_metrics/read", silent_seconds=silent_seconds)
    return [ProcessReport(row["process"], row["samples"], row["alive"]) for row in rows]


async def fold(
    db: Connection,
    add: Callable[[bytes, Mapping[UUID, bytes]], bytes],
    *,
    silent_seconds: float,
    remember_seconds: float,
    rows_max: int,
) -> int:
    """Add the counts of ended processes to the row of all ended ones. Returns how many it folded.

    ``add`` adds their samples to those of the row.
    """

    async def lock_and_fold(connection: RawConnection) -> int:
        async with connection.transaction():
            gone: bytes = await sql.value(connection, "process_metrics/lock_totals")
            rows = await sql.fetch(
                connection,
                "process_metrics/lock_ended",
                silent_seconds=silent_seconds,
                rows_max=rows_max,
            )
            ended = {row["process"]: row["samples"] for row in rows}
            if ended:
                whole = add(gone, ended)
                await sql.fetch(
                    connection,
                    "process_metrics/fold",
                    whole=whole,
                    processes=list(ended),
                    remember_seconds=remember_seconds,
                )
            return len(ended)

    return await db.run(lock_and_fold)
