"""Retrying a job whose answer was lost, and one that is gone or was never there."""

from __future__ import annotations

import pytest

from coatcheck import Engine
from coatcheck.core.org_jobs import OrgJobRepository
from coatcheck.domain.errors import InputNotKept, JobNotEnded, JobNotFound
from coatcheck.domain.org_jobs import OrgJob
from coatcheck.domain.states import State
from tests.db.edge_guard import AsyncpgConnection
from tests.db.rows import ORG, put_job


async def job_in(
    engine: Engine, connection: AsyncpgConnection, state: State, **row: object
) -> OrgJob:
    job = await put_job(connection, state, **row)
    return await engine.extension(OrgJobRepository).get(ORG, job.uuid)


async def test_what_cannot_be_retried_says_why_and_a_known_key_is_known_all_the_same(
    engine: Engine, connection: AsyncpgConnection
) -> None:
    failed = await job_in(engine, connection, State.FAILED, payload=b"{}")
    retry = engine.extension(OrgJobRepository).retry
    first = await retry(failed, idempotency_key="k", request_id=None)
    running = await job_in(engine, connection, State.PROCESSING)
    empty = await job_in(engine, connection, State.FAILED)
    for job, error in ((running, JobNotEnded), (empty, InputNotKept)):
        with pytest.raises(error):
            await retry(job, idempotency_key=None, request_id=None)
    await connection.execute("DELETE FROM jobs WHERE id = $1", failed.uuid)
    with pytest.raises(JobNotFound):
        await retry(failed, idempotency_key=None, request_id=None)
    again = await retry(failed, idempotency_key="k", request_id=None)
    assert (again.uuid, again.created, again.mismatch) == (first.uuid, False, False)
    other = await retry(empty, idempotency_key="k", request_id=None)
    assert (other.uuid, other.created, other.mismatch) == (first.uuid, False, True)
