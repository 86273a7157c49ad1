"""Retrying a job whose answer was lost, and one that is gone or was never there."""

from __future__ import annotations

import pytest

from coatcheck import Engine
from coatcheck.core.org_jobs import OrgJobRepository
from coatcheck.core.queries import org_jobs as console_store
from coatcheck.domain.errors import InputNotKept, JobNotEnded, JobNotFound, OutcomeUnknown
from coatcheck.domain.job import NewJob
from coatcheck.domain.org_jobs import OrgJob
from coatcheck.domain.states import State
from tests.db.edge_guard import AsyncpgConnection
from tests.db.rows import ORG, put_job


async def job_in(
    engine: Engine, connection: AsyncpgConnection, state: State, **row: object
) -> OrgJob:
    job = await put_job(connection, state, **row)
    return await engine.extension(OrgJobRepository).get(ORG, job.uuid)


async def test_a_retry_whose_answer_was_lost_is_sent_again_and_makes_one_job(
    engine: Engine, connection: AsyncpgConnection
) -> None:
    old = await job_in(engine, connection, State.FAILED, payload=b'{"a":1}')
    console: OrgJobRepository = engine.extension(OrgJobRepository)
    sent = 0

    async def send(new: NewJob) -> console_store.Retried | None:
        nonlocal sent
        sent += 1
        answer = await console_store.retry(console._db, old.uuid, new)  # noqa: SLF001  its session
        if sent == 1:
            raise OutcomeUnknown("the connection broke after the commit")
        return answer

    ticket = await console.retry(old, idempotency_key=None, request_id="r", send=send)
    assert ticket.created
    rows = await connection.fetch(
        "SELECT id, payload, state FROM jobs WHERE retry_of = $1", old.uuid
    )
    assert [tuple(row) for row in rows] == [(ticket.uuid, b'{"a":1}', "queued")]
    assert (await console.get(ORG, old.uuid)).retried_as == ticket.uuid


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
