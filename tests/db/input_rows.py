"""Inputs put straight into the tables, as a submission would have."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

from coatcheck.core.queries import inputs
from coatcheck.db.connection import Connection
from coatcheck.domain.ids import new_id
from coatcheck.domain.inputs import Copy, HeldCopy, InputRecord, Layer, StoredInput
from coatcheck.domain.job import NewJob
from tests.db.edge_guard import AsyncpgConnection, unguarded
from tests.db.rows import ENDPOINT, ORG

LIFE_SECONDS = 3_600.0
CONTENT = b"what a customer sent"


def stored_input(blob_key: str = "inputs/d/j/u", *, age_seconds: float = 0.0) -> StoredInput:
    return StoredInput(blob_key, len(CONTENT), 1, hashlib.sha256(CONTENT).digest(), age_seconds)


def new_job(**fields: Any) -> NewJob:
    job = NewJob(
        ORG, new_id(), "standard", ENDPOINT, "", 3, b'{"blob":"inputs/d/j/u"}', owner="ann"
    )
    return replace(job, **fields)


async def put_input(line: Connection, blob_key: str = "inputs/d/j/u", **fields: Any) -> HeldCopy:
    """A queued job with an input. Its blob's copy, as the forgetter would know it."""
    job = new_job(**fields)
    assert await inputs.submit(line, job, stored_input(blob_key), LIFE_SECONDS)
    return HeldCopy(job.org, job.uuid, blob_key)


async def record_of(line: Connection, copy: HeldCopy) -> InputRecord:
    record = await inputs.record(line, copy.org, copy.job)
    assert record is not None
    return record


async def copy_in(line: Connection, layer: Layer, copy: HeldCopy) -> Copy:
    """The one copy of an input in a layer."""
    (found,) = [each for each in (await record_of(line, copy)).copies if each.layer is layer]
    return found


async def end(connection: AsyncpgConnection, copy: HeldCopy, state: str = "completed") -> None:
    """End the job, whatever it was doing, in the shape that every end has."""
    async with unguarded(connection):
        await connection.execute(
            """
            UPDATE jobs SET state = $2::text::job_state, lease = NULL, payload = NULL,
                   run_deadline = NULL, finished_at = now(), expires_at = now() + interval '1 day'
            WHERE id = $1
            """,
            copy.job,
            state,
        )


async def let_expire(connection: AsyncpgConnection, copy: HeldCopy) -> None:
    """Move the clock: the time to live of an input's blob has passed."""
    await connection.execute(
        "UPDATE input_copies SET expires_at = now() - interval '1 second'"
        " WHERE job_id = $1 AND layer = 'blob'",
        copy.job,
    )
