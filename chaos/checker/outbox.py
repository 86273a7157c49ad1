"""I. A row of the outbox exists if and only if its transition does, and is delivered or given up.

``receivers`` in ``core/queries/webhooks.sql`` chooses the receivers; this check repeats that choice
from the transitions that the triggers recorded. Where a product's own states decide (a chat's
``loading``), it only checks that every message has a cause and that the end is sent.
"""

from __future__ import annotations

import asyncio
import time

from chaos.checker.evidence import Evidence
from chaos.checker.finding import Finding
from chaos.checker.ids import spelt
from chaos.progress import EVERY_SECONDS, say

CHECK = "outbox"
_LOOK_SECONDS = 0.5

_TOLD = """
WITH moves AS (
    SELECT h.org_id, h.id, h.before::text AS previous, h.after::text AS state, h.endpoint, h.run_id,
           h.at, h.after IN ('completed', 'failed', 'cancelled') AS is_end
    FROM job_history AS h
    WHERE h.before IS NOT NULL
),
expected AS (
    SELECT m.org_id, w.target_id, m.id, m.previous, m.state,
           CASE w.tells WHEN 1 THEN 'end' WHEN 2 THEN 'state' ELSE 'phase' END AS told_as,
           m.is_end OR (w.tells = 2 AND split_part(m.endpoint, '.', 1) <> 'llm') AS must
    FROM moves AS m
    JOIN job_webhooks AS w ON w.org_id = m.org_id AND w.job_id = m.id
    WHERE m.is_end OR w.tells <> 1
    UNION ALL
    SELECT m.org_id, r.webhook_target, m.id, m.previous, m.state, 'end', j.webhook = 3
    FROM moves AS m
    JOIN jobs AS j ON j.org_id = m.org_id AND j.id = m.id
    JOIN runs AS r ON r.org_id = m.org_id AND r.id = m.run_id
    WHERE j.webhook = 3 AND m.state = 'failed' AND r.webhook_target IS NOT NULL
    UNION ALL
    SELECT m.org_id, t.id, m.id, m.previous, m.state, 'endpoint',
           -- A statement that began before the endpoint was registered did not see it.
           m.at > t.created_at + interval '5 seconds' AND t.deleted_at IS NULL
    FROM moves AS m
    JOIN webhook_targets AS t ON t.org_id = m.org_id AND t.events IS NOT NULL
    WHERE CASE
        WHEN m.run_id IS NULL
        THEN 'job.' || m.state = ANY (t.events) AND m.endpoint NOT LIKE 'batches.%'
        ELSE m.state = 'failed' AND 'task.failed' = ANY (t.events)
    END
),
wanted AS (
    SELECT org_id, target_id, id, previous, state, told_as, count(*) AS moves,
           count(*) FILTER (WHERE must) AS least
    FROM expected GROUP BY org_id, target_id, id, previous, state, told_as
),
written AS (
    SELECT d.org_id, d.target_id, d.subject_id AS id, d.facts ->> 'previous' AS previous,
           d.facts ->> 'state' AS state, d.facts ->> 'as' AS told_as, count(*) AS rows
    FROM webhook_deliveries AS d
    WHERE d.subject_kind IN ('job', 'task')
    GROUP BY 1, 2, 3, 4, 5, 6
)
SELECT id, previous, state, told_as, coalesce(w.moves, 0) AS moves, coalesce(w.least, 0) AS least,
       coalesce(d.rows, 0) AS rows
FROM wanted AS w
FULL JOIN written AS d USING (org_id, target_id, id, previous, state, told_as)
WHERE coalesce(d.rows, 0) < coalesce(w.least, 0) OR coalesce(d.rows, 0) > coalesce(w.moves, 0)
"""

_RUNS = """
SELECT r.group_id AS batch_id, r.number,
       r.completed_at IS NOT NULL AND b.current_run = r.id AS final,
       r.succeeded, 'tasks.succeeded' = ANY (b.webhook_events) AS tells_successes,
       'completed' = ANY (b.webhook_events) AS tells_end,
       count(d.id) FILTER (WHERE d.event IN ('batch.completed', 'batch.cancelled')) AS ends,
       coalesce(sum((d.facts ->> 'succeeded')::bigint)
           FILTER (WHERE d.event = 'tasks.succeeded'), 0) AS told_successes
FROM batches AS b
JOIN runs AS r ON r.org_id = b.org_id AND r.group_id = b.id
LEFT JOIN webhook_deliveries AS d
    ON d.org_id = r.org_id AND d.run_id = r.id AND d.subject_kind = 'batch'
    AND d.target_id = r.webhook_target
WHERE r.webhook_target IS NOT NULL
GROUP BY b.org_id, b.id, r.org_id, r.id
"""


async def webhooks_match_transitions(evidence: Evidence) -> list[Finding]:
    found = []
    for row in await evidence.sql.fetch(_TOLD):
        move = f"job {spelt(row['id'])}, {row['previous']} to {row['state']} ({row['told_as']})"
        bounds = f"{row['least']} to {row['moves']}"
        found.append(_finding(f"{move} is told {row['rows']} times, and should be {bounds} times"))
    for row in await evidence.sql.fetch(_RUNS):
        run = f"run {row['number']} of batch {spelt(row['batch_id'])}"
        least = int(row["final"] and row["tells_end"])
        if not least <= row["ends"] <= 1:
            found.append(_finding(f"the end of {run} is told {row['ends']} times"))
        told, succeeded = row["told_successes"], row["succeeded"]
        if told > succeeded or (row["final"] and row["tells_successes"] and told != succeeded):
            found.append(_finding(f"of {succeeded} successes of {run} {told} are told"))
    return found


async def deliveries_end(evidence: Evidence) -> list[Finding]:
    """All are delivered: the receiver of a run is always up, and accepts repetitions."""
    rows = await evidence.sql.fetch(
        """
        SELECT d.id, d.event, d.status, d.tries, d.last_error,
               t.paused_at IS NOT NULL AS is_paused
        FROM webhook_deliveries AS d
        JOIN webhook_targets AS t ON t.org_id = d.org_id AND t.id = d.target_id
        WHERE d.status <> 'delivered' AND NOT t.pulled
        """
    )
    return [
        _finding(
            f"message {spelt(row['id'])} ({row['event']}) is {row['status']}"
            f"{' and paused' if row['is_paused'] else ''} after {row['tries']} tries: "
            f"{row['last_error']}"
        )
        for row in rows
    ]


async def hasten_deliveries(evidence: Evidence, limit_seconds: float) -> int:
    """Make pending deliveries due now, repeatedly, until none is pending: their delays grow to
    hours, longer than a run. Returns how many are left when none was delivered for this long.

    A long run leaves a queue: a killed server holds slots of its receivers until its leases end.
    That may take time, as long as the queue gets shorter.
    """
    fewest, deadline = float("inf"), time.monotonic() + limit_seconds
    said = time.monotonic()
    while True:
        await evidence.sql.execute(
            "UPDATE webhook_deliveries SET due_at = now()"
            " WHERE status = 'pending' AND lease IS NULL AND tries > 0 AND due_at > now()"
        )
        await evidence.sql.execute("UPDATE webhook_targets SET not_before = NULL")
        left = await evidence.sql.fetchval(
            """
            SELECT count(*) FROM webhook_deliveries AS d
            JOIN webhook_targets AS t ON t.org_id = d.org_id AND t.id = d.target_id
            WHERE d.status = 'pending' AND t.paused_at IS NULL AND NOT t.pulled
            """
        )
        if left < fewest:
            fewest, deadline = left, time.monotonic() + limit_seconds
        if not left or time.monotonic() > deadline:
            return int(left)
        if time.monotonic() - said > EVERY_SECONDS:
            said = time.monotonic()
            say(f"checking: {left} webhooks are not delivered yet")
        await asyncio.sleep(_LOOK_SECONDS)


def _finding(detail: str) -> Finding:
    return Finding(CHECK, "I", detail)
