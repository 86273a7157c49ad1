"""A small run that went well, for the checks to find nothing in, and for tests to spoil.

Its jobs went their way by the product's own statements, under the witnesses of a chaos run. What a
test does to it is undone when the test ends.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from chaos.checker import witness
from chaos.checker.evidence import Evidence, Row
from chaos.checker.finding import Finding
from chaos.checker.ids import spelt
from coatcheck.core.queries import maintenance
from coatcheck.db.connection import Connection
from coatcheck.db.notifications import Notifier
from coatcheck.domain.ids import new_id
from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.states import TransitionEvent
from coatcheck.domain.webhooks import message_id
from coatcheck.maintenance.usage import UsageRollup
from coatcheck.products.batches.maintenance import RunCompleter
from tests.db.claimer import Claimer, claimer
from tests.db.edge_guard import AsyncpgConnection, unguarded
from tests.db.rows import ENDPOINT, ORG, connected, recorded

BATCH_TASKS = 3
CANARY = b"canary-7-"
Check = Callable[[Evidence], Awaitable[list[Finding]]]


@dataclass
class Scene:
    """What there is: jobs by what became of them, a batch, a delivery, and the evidence of all."""

    sql: AsyncpgConnection
    evidence: Evidence
    completed: UUID
    failed: UUID
    rescued: UUID
    batch: UUID
    run: UUID
    delivery: UUID

    async def findings(self, check: Check, *more: Row) -> list[str]:
        """What a check finds, with more rows in the history than there were."""
        evidence = replace(self.evidence, history=[*self.evidence.history, *more])
        return [finding.detail for finding in await check(evidence)]

    async def spoil(self, statement: str, *arguments: Any) -> None:
        """Change rows behind everybody's back: no trigger sees it."""
        async with unguarded(self.sql):
            changed = await self.sql.execute(statement, *arguments)
        assert not changed.endswith(" 0"), "there was nothing to spoil"


@asynccontextmanager
async def played(dsn: str, folder: Path) -> AsyncIterator[Scene]:
    """Play it, once."""
    await witness.install(dsn)
    for place in ("blobs", "temp", "logs"):
        (folder / place).mkdir()
    async with connected(dsn) as sql, claimer(dsn) as worker:
        scene = await _play(sql, worker, dsn, folder)
        yield scene


async def _play(sql: AsyncpgConnection, worker: Claimer, dsn: str, folder: Path) -> Scene:
    target, batch, run = new_id(), new_id(), new_id()
    completed, failed, rescued = [await _submit(sql, target) for _ in range(3)]
    await _create_batch(sql, batch, run, target)
    claimed = {job.uuid: job for job in await worker.claim(10)}
    await _end(worker, claimed, completed, failed, rescued)
    await _rescue(sql, worker, rescued)
    await _count(dsn)
    delivery = await sql.fetchval(
        "SELECT id FROM webhook_deliveries WHERE subject_id = $1", completed
    )
    await sql.execute(
        "UPDATE webhook_deliveries SET status = 'delivered', due_at = NULL, ended_at = now()"
    )
    history = _history([completed, failed, rescued], batch)
    history += [
        _received(row["id"], row["event"], row["subject_id"])
        for row in await sql.fetch("SELECT id, event, subject_id FROM webhook_deliveries")
    ]
    evidence = Evidence(history=history, sql=sql, dsn=dsn, folder=folder, canaries=[CANARY])
    return Scene(sql, evidence, completed, failed, rescued, batch, run, delivery)


async def _submit(sql: AsyncpgConnection, target: UUID) -> UUID:
    job = new_id()
    await sql.execute(
        recorded("""
        INSERT INTO jobs (org_id, id, lane, failures_max, endpoint, flow, payload, webhook,
                          idempotency_key)
        VALUES ($1, $2, 'standard', 0, $3, '', '{}', 2, $4)
        """),
        ORG,
        job,
        ENDPOINT,
        job.hex,
    )
    await sql.execute(
        "INSERT INTO webhook_targets (org_id, id, url) VALUES ($1, $2, 'https://example.com/')"
        " ON CONFLICT DO NOTHING",
        ORG,
        target,
    )
    await sql.execute(
        "INSERT INTO job_webhooks (org_id, job_id, target_id, tells) VALUES ($1, $2, $3, 2)",
        ORG,
        job,
        target,
    )
    return job


async def _create_batch(sql: AsyncpgConnection, batch: UUID, run: UUID, target: UUID) -> None:
    await sql.execute(
        """
        INSERT INTO batches (org_id, id, owner, service, service_endpoint, endpoint, lane,
                             failures_max, is_open, keep_seconds, current_run, webhook_events)
        VALUES ($1, $2, '', 'demo', '/work', $3, 'standard', 0, false, 86400, $4,
                '{completed,tasks.succeeded}')
        """,
        ORG,
        batch,
        ENDPOINT,
        run,
    )
    await sql.execute(
        """
        INSERT INTO runs (org_id, id, group_id, number, lane, endpoint, service, service_endpoint,
                          webhook_target, tasks, total, latched_at, closed_at)
        VALUES ($1, $2, $3, 1, 'standard', $5, 'demo', '/work', $6, $4, $4, now(), now())
        """,
        ORG,
        run,
        batch,
        BATCH_TASKS,
        ENDPOINT,
        target,
    )
    await sql.execute(
        recorded("""
        INSERT INTO jobs (org_id, id, lane, failures_max, endpoint, flow, payload, run_id,
                          task_index)
        SELECT $1, gen_random_uuid(), 'standard', 0, $2, $3::uuid::text, '{}', $3, n
        FROM generate_series(0, $4::integer - 1) AS n
        """),
        ORG,
        ENDPOINT,
        run,
        BATCH_TASKS,
    )


async def _end(
    worker: Claimer, claimed: dict[UUID, ClaimedJob], completed: UUID, failed: UUID, rescued: UUID
) -> None:
    assert len(claimed) == 3 + BATCH_TASKS
    await worker.settle(claimed.pop(failed), TransitionEvent.FAIL)
    claimed.pop(rescued)
    assert await worker.complete(*claimed.values()) == 1 + BATCH_TASKS


async def _rescue(sql: AsyncpgConnection, worker: Claimer, rescued: UUID) -> None:
    """Its worker falls silent, it is taken back, claimed again, and completed."""
    await sql.execute("UPDATE workers SET last_seen_at = now() - interval '1 hour'")
    taken = await maintenance.rescue(
        worker.line, crashes_max=3, keep_failed_seconds=60, rows_max=10
    )
    assert [job.uuid for job in taken] == [rescued]
    await sql.execute("UPDATE workers SET last_seen_at = now()")
    assert await worker.complete(*await worker.claim(1)) == 1


async def _count(dsn: str) -> None:
    line, notify_db = Connection(dsn, name="bookkeeper"), Connection(dsn, name="notify")
    notifier = Notifier(notify_db)
    try:
        await UsageRollup(line, notifier).tick()
        await RunCompleter(line, notifier).tick()
        await notifier.drain()
    finally:
        await line.close()
        await notify_db.close()


def _history(jobs: list[UUID], batch: UUID) -> list[Row]:
    expected = ["completed", "failed", "completed"]
    rows: list[Row] = [{"t": 0.0, "kind": "began", "wall": datetime.now(UTC).timestamp() - 60}]
    for number, (job, expect) in enumerate(zip(jobs, expected, strict=True)):
        call = {"call": number, "surface": "gateway", "operation": "submit", "org": ORG}
        call |= {"key": f"key-{number}"}
        rows.append({"t": 1.0, "kind": "invoked", **call, "expect": expect})
        rows.append({"t": 1.1, "kind": "ok", **call, "job": spelt(job), "status": 202})
        seen = {"surface": "gateway", "job": spelt(job), "state": expect, "terminal": True}
        rows.append({"t": 2.0, "kind": "seen", **seen, "result_digest": "d"})
    call = {"call": 9, "surface": "batches", "operation": "create_batch", "org": ORG, "key": "b"}
    rows.append({"t": 1.0, "kind": "invoked", **call, "tasks": BATCH_TASKS})
    rows.append({"t": 1.1, "kind": "ok", **call, "job": spelt(batch), "status": 202})
    return rows


def _received(delivery: UUID, event: str, subject: UUID) -> Row:
    return {
        "t": 3.0,
        "kind": "received",
        "webhook_id": message_id(delivery),
        "type": event,
        "job": spelt(subject),
        "answered": 204,
        "verified": True,
    }
