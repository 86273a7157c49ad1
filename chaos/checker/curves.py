"""The course of a run second by second, from the database's trigger log."""

from __future__ import annotations

from chaos.checker.evidence import Evidence

_BY_SECOND = """
SELECT floor(extract(epoch FROM at) - $1)::integer AS second,
       count(*) FILTER (WHERE before IS NULL) AS submitted,
       count(*) FILTER (WHERE after IN ('completed', 'failed', 'cancelled')) AS ended
FROM job_history
WHERE before IS NULL OR after IN ('completed', 'failed', 'cancelled')
GROUP BY 1 ORDER BY 1
"""


async def curves(evidence: Evidence) -> dict[str, list[int]]:
    """Submitted and finished jobs and tasks for each second of the run."""
    began = next((row["wall"] for row in evidence.rows("began")), None)
    rows = [] if began is None else await evidence.sql.fetch(_BY_SECOND, began)
    rows = [row for row in rows if row["second"] >= 0]
    found = {name: [0] * (rows[-1]["second"] + 1 if rows else 0) for name in ("submitted", "ended")}
    for row in rows:
        for name, numbers in found.items():
            numbers[row["second"]] = row[name]
    return found
