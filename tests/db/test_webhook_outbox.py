"""The outbox: a row if and only if a job has ended that somebody is to be told of."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from coatcheck.core.queries import sql, webhooks
from coatcheck.domain.ids import new_id
from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.states import State, TransitionEvent
from coatcheck.domain.webhooks import target_id
from tests.db.claimer import KEEP_COMPLETED_SECONDS, Claimer
from tests.db.edge_guard import AsyncpgConnection
from tests.db.plans import columns, explain
from tests.db.rows import ENDPOINT, ORG, put_job
from tests.db.test_usage import WAYS, end

URL = "https://example.com/"
TARGET = target_id(ORG, URL)
TELL_THE_END, TELL_A_TASK_S_FAILURE = 1, 3


async def told(connection: AsyncpgConnection) -> list[dict[str, Any]]:
    rows = await connection.fetch("SELECT * FROM webhook_deliveries ORDER BY id")
    return [dict(row) | {"facts": json.loads(row["facts"])} for row in rows]


async def put_told_job(connection: AsyncpgConnection, state: State, **others: Any) -> ClaimedJob:
    job = await put_job(connection, state, webhook=TELL_THE_END, **others)
    await webhooks.upsert_targets(connection, [(ORG, TARGET, URL)])
    await connection.execute(
        "INSERT INTO job_webhooks (org_id, job_id, target_id) VALUES ($1, $2, $3)",
        ORG,
        job.uuid,
        TARGET,
    )
    return job


async def put_run(connection: AsyncpgConnection, target: UUID | None) -> UUID:
    """A run of a group, whose id is answered."""
    run = new_id()
    await connection.execute(
        "INSERT INTO runs (org_id, id, group_id, number, lane, endpoint, service, service_endpoint,"
        " webhook_target) VALUES ($1, $2, $3, 1, 'bulk', 's.e', 's', 'e', $4)",
        ORG,
        run,
        new_id(),
        target,
    )
    return run


@pytest.mark.parametrize(("how", "state", "columns", "final", "attempts"), WAYS)
async def test_every_way_to_end_is_told_once(
    how: str,
    state: State,
    columns: dict[str, Any],
    final: State,
    attempts: int,
    connection: AsyncpgConnection,
    worker: Claimer,
) -> None:
    job = await put_told_job(connection, state, **columns)
    await end(how, worker, job)
    await end(how, worker, job)  # whoever says it again changes nothing
    (row,) = await told(connection)
    assert (row["target_id"], row["subject_kind"], row["subject_id"]) == (TARGET, "job", job.uuid)
    assert (row["event"], row["run_id"], row["status"]) == (f"job.{final.value}", None, "pending")
    assert row["facts"]["state"] == final.value
    assert row["facts"]["attempt"] == attempts
    assert row["facts"]["endpoint"] == ENDPOINT
    assert ("error_code" in row["facts"]) == (final is not State.COMPLETED)


@pytest.mark.parametrize(("how", "state", "columns", "final", "attempts"), WAYS)
async def test_no_way_to_end_is_told_of_a_job_without_a_webhook(
    how: str,
    state: State,
    columns: dict[str, Any],
    final: State,
    attempts: int,
    connection: AsyncpgConnection,
    worker: Claimer,
) -> None:
    job = await put_job(connection, state, **columns)
    await end(how, worker, job)
    assert await told(connection) == []


async def test_an_attempt_that_is_not_the_last_is_not_told(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_told_job(connection, State.PROCESSING)
    await worker.settle(job, TransitionEvent.RETRY)
    assert await told(connection) == []


async def test_a_task_s_failure_is_told_to_whom_its_batch_names(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    run = await put_run(connection, TARGET)
    of_run = {"run_id": run, "webhook": TELL_A_TASK_S_FAILURE, "flow": f"{run.hex}/of.its.payload"}
    failed = await put_job(connection, State.PROCESSING, task_index=0, **of_run)
    completed = await put_job(connection, State.PROCESSING, task_index=1, **of_run)
    await worker.settle(failed, TransitionEvent.FAIL)
    await worker.complete(completed)
    (row,) = await told(connection)
    assert (row["target_id"], row["subject_kind"], row["event"]) == (TARGET, "task", "task.failed")
    assert (row["subject_id"], row["run_id"]) == (failed.uuid, run)
    assert "of.its.payload" not in str(row["facts"])


async def test_a_task_of_a_batch_that_names_nobody_is_not_told(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    run = await put_run(connection, None)
    job = await put_job(
        connection, State.PROCESSING, task_index=0, run_id=run, webhook=TELL_A_TASK_S_FAILURE
    )
    await worker.settle(job, TransitionEvent.FAIL)
    assert await told(connection) == []


async def test_ending_jobs_without_webhooks_reads_no_table_of_webhooks(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    held = [await put_job(connection, State.PROCESSING) for _ in range(100)]
    done = columns([(job.org, job.uuid, job.lease, b"1", 0.5, 2) for job in held])
    order = worker.order(0).arguments(limited=False)

    async def plan(it: AsyncpgConnection) -> Any:
        return await explain(it, sql("claims/exchange"), *order, *done, KEEP_COMPLETED_SECONDS, [])

    explained = await worker.line.run(plan)
    for table in ("job_webhooks", "runs"):
        scans = explained.scans(table)
        assert scans, table
        assert {scan["Actual Loops"] for scan in scans} == {0}, table


async def test_ending_jobs_with_webhooks_finds_each_by_its_key(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    held = [await put_told_job(connection, State.PROCESSING) for _ in range(100)]
    done = columns([(job.org, job.uuid, job.lease, b"1", 0.5, 2) for job in held])
    order = worker.order(0).arguments(limited=False)

    async def plan(it: AsyncpgConnection) -> Any:
        return await explain(it, sql("claims/exchange"), *order, *done, KEEP_COMPLETED_SECONDS, [])

    explained = await worker.line.run(plan)
    assert explained.indexes("job_webhooks") == {"job_webhooks_pkey"}
    assert explained.rows_read("job_webhooks") == 100
