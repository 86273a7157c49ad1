"""D. Billed usage equals finished jobs: each end is metered once, with its attempts and its
result."""

from __future__ import annotations

from chaos.checker.evidence import Evidence
from chaos.checker.finding import Finding

CHECK = "usage"
_MEASURES = ("completed", "failed", "cancelled", "attempts", "result_bytes")


async def metered_once(evidence: Evidence) -> list[Finding]:
    """Compares metered sums, rolled up or not, with the ends that the triggers recorded."""
    rows = await evidence.sql.fetch(
        """
        WITH metered AS (
            SELECT org_id, endpoint, completed, failed, cancelled, attempts, result_bytes FROM usage
            UNION ALL
            SELECT org_id, endpoint, completed, failed, cancelled, attempts, result_bytes
            FROM usage_deltas
        ),
        ended AS (
            SELECT org_id, endpoint,
                   (after = 'completed')::integer AS completed,
                   (after = 'failed')::integer AS failed,
                   (after = 'cancelled')::integer AS cancelled,
                   attempts, CASE WHEN after = 'completed' THEN result_bytes ELSE 0 END
                       AS result_bytes
            FROM job_history
            WHERE after IN ('completed', 'failed', 'cancelled')
        ),
        billed AS (
            SELECT org_id, endpoint, sum(completed)::bigint AS completed,
                   sum(failed)::bigint AS failed, sum(cancelled)::bigint AS cancelled,
                   sum(attempts)::bigint AS attempts, sum(result_bytes)::bigint AS result_bytes
            FROM metered GROUP BY org_id, endpoint
        ),
        seen AS (
            SELECT org_id, endpoint, sum(completed)::bigint AS completed,
                   sum(failed)::bigint AS failed, sum(cancelled)::bigint AS cancelled,
                   sum(attempts)::bigint AS attempts, sum(result_bytes)::bigint AS result_bytes
            FROM ended GROUP BY org_id, endpoint
        )
        SELECT org_id, endpoint,
               b.completed AS b_completed, s.completed AS s_completed,
               b.failed AS b_failed, s.failed AS s_failed,
               b.cancelled AS b_cancelled, s.cancelled AS s_cancelled,
               b.attempts AS b_attempts, s.attempts AS s_attempts,
               b.result_bytes AS b_result_bytes, s.result_bytes AS s_result_bytes
        FROM billed AS b
        FULL JOIN seen AS s USING (org_id, endpoint)
        """
    )
    return [
        Finding(
            CHECK,
            "D",
            f"{row['endpoint']} of {row['org_id']}: {measure} is metered as "
            f"{row['b_' + measure] or 0}, and was {row['s_' + measure] or 0}",
        )
        for row in rows
        for measure in _MEASURES
        if (row["b_" + measure] or 0) != (row["s_" + measure] or 0)
    ]
