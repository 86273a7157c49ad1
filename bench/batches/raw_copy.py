"""The baseline for an ingest: a raw COPY of the rows that it wrote.

The same columns of the same rows with the same ids, in the order in which the ingest wrote them and
encoded beforehand, into a fresh table of the same schema with all its indexes, by one COPY and one
commit.
"""

import time
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import asyncpg

from bench.postgres import Postgres
from bench.scenarios.enqueue import LostJobsError
from coatcheck.products.batches.ingest_repository import COLUMNS

_PIECE_BYTES = 64 * 1024
_SECONDS_MAX = 600.0


async def copied_per_second(postgres: Postgres, address: str, run: UUID, file: Path) -> float:
    """Rows a second. ``file`` is a temporary file for the rows."""
    await _save(address, run, file)
    database = await postgres.create_database("coatcheck")
    try:
        connection = await asyncpg.connect(database.address)
        try:
            begun = time.perf_counter()
            status = await connection.copy_to_table(
                "jobs", source=_pieces(file), columns=COLUMNS, format="binary", timeout=_SECONDS_MAX
            )
            seconds = time.perf_counter() - begun
            rows = int(status.split()[-1])
            stored = await connection.fetchval("SELECT count(*) FROM jobs")
        finally:
            await connection.close()
    finally:
        await database.remove()
        file.unlink()
    if stored != rows:
        raise LostJobsError(rows, stored)
    return rows / seconds


async def _save(address: str, run: UUID, file: Path) -> None:
    connection = await asyncpg.connect(address)
    try:
        await connection.copy_from_query(
            f"SELECT {', '.join(COLUMNS)} FROM jobs WHERE run_id = $1",
            run,
            output=file,
            format="binary",
            timeout=_SECONDS_MAX,
        )
    finally:
        await connection.close()


async def _pieces(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            yield piece
