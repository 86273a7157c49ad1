"""E. No dead state: something moves every unfinished job on, and every job finishes."""

from __future__ import annotations

import asyncio
import time

from chaos.checker.evidence import Evidence
from chaos.checker.finding import Finding
from chaos.checker.ids import spelt

CHECK = "dead states"

_STUCK = """
SELECT j.id, j.state::text AS state, j.endpoint,
       CASE
           WHEN j.payload IS NULL THEN 'has no payload'
           WHEN (j.lease IS NOT NULL) <> (
               j.state IN ('dispatching', 'processing', 'finalizing', 'cancel_requested')
           ) THEN 'is held without a lease, or the other way round'
           WHEN j.state IN ('staged', 'retrying') AND j.run_at = 'infinity' THEN 'is never due'
           WHEN j.lease >> 40 = 0 AND NOT EXISTS (
               SELECT FROM remote_calls AS c
               WHERE c.org_id = j.org_id AND c.job_id = j.id AND c.due_at < 'infinity'
           ) THEN 'runs on a remote, and nothing will poll it'
           WHEN j.state = 'queued' AND j.run_at < now() - interval '120 seconds'
           THEN 'has been due for two minutes, and nobody takes it'
           WHEN j.state IN ('staged', 'retrying') AND j.run_at < now() - interval '60 seconds'
           THEN 'is long due, and was not put into the queue'
           WHEN j.lease >> 40 > 0 AND j.updated_at < now() - interval '60 seconds'
               AND NOT EXISTS (SELECT FROM workers AS w WHERE w.boot = j.lease >> 40)
           THEN 'is held by a worker that is gone, and was not rescued'
           WHEN j.lease IS NOT NULL AND NOT EXISTS (
               SELECT FROM claims AS k
               WHERE k.org_id = j.org_id AND k.lease = j.lease AND j.id = ANY (k.ids)
           ) THEN 'is held, and no row of claims leads to it'
           WHEN j.state IN ('staged', 'retrying') AND NOT EXISTS (
               SELECT FROM postponed AS p
               WHERE p.org_id = j.org_id AND p.id = j.id AND p.run_at = j.run_at
           ) THEN 'waits for a time, and no row of postponed has it'
       END AS why
FROM jobs AS j
WHERE j.state NOT IN ('completed', 'failed', 'cancelled')
UNION ALL
SELECT j.id, j.state::text, j.endpoint, 'has ended, and lists of such jobs lack it'
FROM jobs AS j
WHERE j.state IN ('failed', 'cancelled') AND j.run_id IS NULL AND NOT EXISTS (
    SELECT FROM unsuccessful_jobs AS u
    WHERE u.org_id = j.org_id AND u.id = j.id AND u.state = j.state
)
UNION ALL
SELECT j.id, j.state::text, j.endpoint, 'has ended, and lists of such tasks lack it'
FROM jobs AS j
WHERE j.state IN ('completed', 'failed', 'cancelled') AND j.run_id IS NOT NULL AND NOT EXISTS (
    SELECT FROM ended_tasks AS t
    WHERE t.org_id = j.org_id AND t.run_id = j.run_id AND t.state = j.state
      AND t.block = j.task_index / 64 AND j.id = ANY (t.ids)
)
"""

_INTAKES = """
SELECT p.id, p.batch_id, 'a list without an ingest job' AS why
FROM batch_parts AS p
LEFT JOIN jobs AS j ON j.org_id = p.org_id AND j.id = p.ingest_job
WHERE p.state = 'pending' AND p.updated_at < now() - interval '120 seconds'
  AND (j.id IS NULL OR j.state IN ('completed', 'failed', 'cancelled'))
UNION ALL
SELECT e.id, e.batch_id, 'an export that nobody writes'
FROM batch_exports AS e
LEFT JOIN jobs AS j ON j.org_id = e.org_id AND j.id = e.export_job
WHERE e.state = 'pending' AND e.created_at < now() - interval '120 seconds'
  AND (j.id IS NULL OR j.state IN ('completed', 'failed', 'cancelled'))
"""


_NOT_ENDED = """
SELECT id, state::text AS state, endpoint FROM jobs
WHERE state NOT IN ('completed', 'failed', 'cancelled')
"""
END_SECONDS = 60.0
"""Without new jobs and faults, all remaining jobs finish well within this time."""
_LOOK_SECONDS = 0.5


async def all_ends(evidence: Evidence, *, limit_seconds: float = END_SECONDS) -> list[Finding]:
    """Includes work without a waiting caller: ingests, exports, tasks of earlier runs."""
    deadline = time.monotonic() + limit_seconds
    while rows := await evidence.sql.fetch(_NOT_ENDED):
        if time.monotonic() > deadline:
            break
        await asyncio.sleep(_LOOK_SECONDS)
    return [
        _finding(f"job {spelt(row['id'])} of {row['endpoint']} is still {row['state']}")
        for row in rows
    ]


async def no_dead_state(evidence: Evidence) -> list[Finding]:
    jobs = await evidence.sql.fetch(f"SELECT * FROM ({_STUCK}) AS s WHERE why IS NOT NULL")
    intakes = await evidence.sql.fetch(_INTAKES)
    return [
        _finding(f"job {spelt(row['id'])} of {row['endpoint']}, {row['state']}, {row['why']}")
        for row in jobs
    ] + [_finding(f"batch {spelt(row['batch_id'])}: {row['why']}") for row in intakes]


def _finding(detail: str) -> Finding:
    return Finding(CHECK, "E", detail)
