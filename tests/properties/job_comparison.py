"""The database against the oracle: every row of every job, its events, its outbox, its usage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import date
from typing import Final
from uuid import UUID

import asyncpg
import msgspec
import pytest

from coatcheck.core.queries import usage
from coatcheck.domain.limits import CRASHES_TOGETHER_MAX
from coatcheck.domain.states import State
from tests.db.rows import expiries
from tests.properties.job_model import JobModel, ModelJob, Told, Used
from tests.properties.stepped_deployment import UNIT_SECONDS, SteppedDeployment

TOLERANCE_UNITS: Final = 0.25
"""How long a history may take to play."""
_EVER: Final = (date(2000, 1, 1), date(2100, 1, 1))

JOBS: Final = """
    SELECT id, org_id, lane::text, endpoint, flow, state::text, payload, failures_max, failures,
           crashes, interruptions, unreachables, lease, idempotency_key, error_code, result,
           progress, progress_note, retry_of, keeps_input,
           extract(epoch FROM created_at)::float8 AS created_at,
           extract(epoch FROM run_at)::float8 AS run_at,
           extract(epoch FROM start_deadline)::float8 AS start_deadline,
           extract(epoch FROM dispatched_at)::float8 AS dispatched_at,
           extract(epoch FROM started_at)::float8 AS started_at,
           extract(epoch FROM run_deadline)::float8 AS run_deadline,
           extract(epoch FROM finished_at)::float8 AS finished_at,
           extract(epoch FROM expires_at)::float8 AS expires_at,
           run_seconds
    FROM jobs
"""
_EVENTS: Final = "SELECT job_id, kind, data FROM job_events"
OUTBOX: Final = """
    SELECT org_id, target_id, subject_id, event, facts ->> 'state', facts ->> 'previous',
           (facts ->> 'attempt')::integer, facts ->> 'error_code'
    FROM webhook_deliveries
"""
_LISTENERS: Final = "SELECT job_id, target_id, tells FROM job_webhooks"
_WORKERS: Final = "SELECT boot FROM workers"

_SAME: Final = (
    ("org_id", "org"),
    ("lane", "lane"),
    ("endpoint", "endpoint"),
    ("flow", "queue_key"),
    ("state", "state"),
    ("payload", "payload"),
    ("failures_max", "failures_max"),
    ("failures", "failures"),
    ("crashes", "crashes"),
    ("interruptions", "interruptions"),
    ("unreachables", "unreachables"),
    ("lease", "lease"),
    ("idempotency_key", "key"),
    ("error_code", "error_code"),
    ("result", "result"),
    ("progress", "progress"),
    ("progress_note", "progress_note"),
    ("retry_of", "retry_of"),
    ("keeps_input", "keeps_input"),
)
_MOMENTS: Final = (
    "created_at",
    "run_at",
    "start_deadline",
    "dispatched_at",
    "started_at",
    "run_deadline",
    "finished_at",
    "expires_at",
)


async def check(deployment: SteppedDeployment, model: JobModel) -> None:
    """Everything that is written down is as it should be, and there is nothing else."""
    rows = {row["id"]: row for row in await deployment.connection.fetch(JOBS)}
    assert set(rows) == set(model.jobs), "other jobs than there should be"
    base = deployment.base_seconds - model.now * UNIT_SECONDS
    for uuid, job in model.jobs.items():
        check_job(job, rows[uuid], base)
        check_bounds(job, rows[uuid])
    await check_events(deployment, model)
    await check_outbox(deployment, model)
    await check_expiries(deployment, rows)
    await check_usage(deployment, model)
    workers = {row["boot"] for row in await deployment.connection.fetch(_WORKERS)}
    assert workers == set(model.workers)
    assert all(ends == 1 for ends in model.ends.values()), "a job ended twice"


async def check_expiries(
    deployment: SteppedDeployment, rows: Mapping[UUID, asyncpg.Record]
) -> None:
    """The pruner finds every job that has ended, when it expires, and no other."""
    recorded = await expiries(deployment.connection)
    stored = {uuid: row["expires_at"] for uuid, row in rows.items() if row["expires_at"]}
    assert {uuid: at.timestamp() for uuid, at in recorded.items()} == pytest.approx(
        stored, rel=0.0, abs=0.001
    )


def check_job(job: ModelJob, row: asyncpg.Record, base: float) -> None:
    differing = {
        column: (row[column], getattr(job, name))
        for column, name in _SAME
        if row[column] != getattr(job, name)
    }
    for column in _MOMENTS:
        stored, modelled = row[column], getattr(job, column)
        if (stored is None) != (modelled is None):
            differing[column] = (stored, modelled)
        elif stored is not None:
            units = (stored - base) / UNIT_SECONDS
            if abs(units - modelled) > TOLERANCE_UNITS:
                differing[column] = (units, modelled)
    ran = row["run_seconds"] / UNIT_SECONDS
    if abs(ran - job.run_units) > TOLERANCE_UNITS:
        differing["run_seconds"] = (ran, job.run_units)
    assert not differing, f"{job.uuid}: (stored, modelled): {differing}"


def check_bounds(job: ModelJob, row: asyncpg.Record) -> None:
    """No dead state, and no endless one (invariants E and F)."""
    state = State(row["state"])
    assert row["failures"] <= row["failures_max"] + 1, "more failures than allowed"
    assert row["crashes"] <= CRASHES_TOGETHER_MAX + 1, "more crashes than allowed"
    if state.held:
        assert row["lease"] is not None
        assert row["run_deadline"] is not None
    elif state.terminal:
        assert row["expires_at"] is not None
    else:
        assert row["run_at"] is not None
        assert row["payload"] is not None


async def check_events(deployment: SteppedDeployment, model: JobModel) -> None:
    said: dict[UUID, Counter[tuple[object, ...]]] = {}
    for job, kind, data in await deployment.connection.fetch(_EVENTS):
        said.setdefault(job, Counter())[_event(kind, data)] += 1
    expected = {uuid: job.said for uuid, job in model.jobs.items() if job.said}
    assert said == expected


def _event(kind: str, data: bytes) -> tuple[object, ...]:
    told = msgspec.json.decode(data)
    if kind == "attempt":
        return kind, told["attempt"], told["outcome"], told["state"], told["code"]
    if kind == "alert":
        return kind, told["code"], told["attempts"]
    return kind, told


async def check_outbox(deployment: SteppedDeployment, model: JobModel) -> None:
    """A row for each move that somebody was to be told of, and no other (invariant I)."""
    rows: list[Told] = [tuple(row) for row in await deployment.connection.fetch(OUTBOX)]
    told = Counter(rows)
    assert told == model.told, f"too much: {told - model.told}, missing: {model.told - told}"
    listeners = {(row[0], row[1]): row[2] for row in await deployment.connection.fetch(_LISTENERS)}
    assert listeners == {
        (job.uuid, target): tells
        for job in model.jobs.values()
        for target, tells in job.tells.items()
    }


async def check_usage(deployment: SteppedDeployment, model: JobModel) -> None:
    """What was used is what the ends of jobs add up to, rolled up or not (invariant D)."""
    used: dict[tuple[str, str, str], Used] = {}
    for org in sorted({org for org, _, _ in model.used}):
        for row in await usage.read(deployment.line, org, *_EVER, None):
            sums = used.setdefault((org, row.endpoint, row.queue_key), Used())
            sums.completed += row.completed
            sums.failed += row.failed
            sums.cancelled += row.cancelled
            sums.attempts += row.attempts
            sums.payload_bytes += row.payload_bytes
            sums.result_bytes += row.result_bytes
    # What batches are served by is not modelled.
    of_jobs = {key: sums for key, sums in used.items() if not key[1].startswith("batches.")}
    assert of_jobs == model.used
